"""The receiver `http` of deliveries. Needs aiohttp: the extra `http`."""
