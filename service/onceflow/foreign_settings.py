"""Settings of Kafka's clients and of Spark that were judged: which may be set, which may be shown.

An allow list. Beyond it are names that weaken the connection
(`enable.ssl.certificate.verification`), hold secrets (`ssl.keystore.password`), run code
(`plugin.library.paths`) or break the guarantee (`enable.idempotence`), and those that no one has
looked at yet.
"""

from __future__ import annotations


def names_in(text: str) -> frozenset[str]:
    """Each word of a text."""
    return frozenset(text.split())


CLIENT = names_in("""
    client.id client.rack log_level debug statistics.interval.ms enable.metrics.push

    broker.address.family broker.address.ttl client.dns.lookup connections.max.idle.ms
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms

    ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.sigalgs.list

    check.crcs fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes
    fetch.queue.backoff.ms fetch.wait.max.ms max.partition.fetch.bytes message.max.bytes
    queued.max.messages.kbytes queued.min.messages receive.message.max.bytes

    batch.num.messages batch.size compression.codec compression.level compression.type linger.ms
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms request.timeout.ms
""")
"""Of librdkafka, without secrets: identity and logs; connections; how strict TLS is; reading;
writing. All of them may be set and shown."""

SPARK_SHOWN = names_in("""
    spark.authenticate spark.authenticate.secret.file spark.blockManager.port spark.cores.max
    spark.default.parallelism spark.driver.bindAddress spark.driver.cores spark.driver.host
    spark.driver.maxResultSize spark.driver.memoryOverhead spark.driver.port
    spark.executor.cores spark.executor.instances spark.executor.memory
    spark.executor.memoryOverhead spark.hadoop.fs.s3a.endpoint spark.hadoop.fs.s3a.endpoint.region
    spark.hadoop.fs.s3a.path.style.access spark.io.encryption.enabled
    spark.kubernetes.container.image spark.kubernetes.container.image.pullPolicy
    spark.kubernetes.driver.pod.name spark.kubernetes.executor.podNamePrefix
    spark.kubernetes.executor.podTemplateContainerName spark.kubernetes.executor.podTemplateFile
    spark.kubernetes.namespace spark.local.dir spark.network.crypto.enabled spark.network.timeout
    spark.speculation spark.sql.ansi.enabled spark.sql.session.timeZone
    spark.sql.shuffle.partitions
    spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage
    spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB spark.task.cpus spark.task.maxFailures
""")
"""Of Spark, whose values hold no secret. Others may be set, and their values are never shown."""
