"""HTTP in, Kafka out: takes posts, and answers when the brokers have acknowledged them."""
