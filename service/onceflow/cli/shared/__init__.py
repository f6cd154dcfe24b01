"""What commands share: options, settings, and how they print."""
