"""The target `delta` of deliveries. Needs deltalake, obstore and Arrow: the extra `delta`."""
