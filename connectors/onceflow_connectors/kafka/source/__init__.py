"""Plans batches on the driver and reads them in workers."""
