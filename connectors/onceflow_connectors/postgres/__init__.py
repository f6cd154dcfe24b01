"""The target `postgres` of deliveries. Needs psycopg: the extra `postgres`."""
