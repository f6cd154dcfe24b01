"""How long a pipeline and its readers stand still when its driver is killed."""
