"""Spark itself: sessions, JVM, errors, archives of classes, processes that plan and work."""
