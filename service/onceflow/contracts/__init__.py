"""What connectors must do, and how they are found."""
