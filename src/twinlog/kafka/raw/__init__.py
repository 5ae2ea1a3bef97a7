"""Batches over the wire: fetched as they lie in the log, produced as they were prepared, transactions around them.

    async with RawClient(source_options) as source, RawClient(target_options) as target:
        fetcher = RawFetcher(source, FetchSettings(read_committed=True))
        answers = await fetcher.poll({partition: position}, max_wait_seconds=0.5)
        #   -> Mapping[TopicPartition, FetchedPartition | FetchFailure]
        ends = await fetcher.list_offsets(OffsetSpec.LATEST, partitions)

        await fence(target, ["twinlog-A-B-0-0", "twinlog-A-B-0-1"], timeout_seconds=30)

        async with TransactionRotation(target, ("twinlog-A-B-0-0", "twinlog-A-B-0-1"), ProducerSettings()) as txn:
            txn.begin()
            acks = [txn.send(TopicPartition("A.orders", 0), batch) for batch in prepared.batches]
            txn.send(TopicPartition("mm2-offsets.A.internal", 4), build_batch(position_records))
            await txn.commit()                  # waits for every ack, then for the commit
            base_offset = acks[0].result()      # an asyncio.Future[int]

`RawProducer(target, ProducerSettings(), transactional_id=None)` is the idempotent one: same `send`, then `flush`.
After any failure a producer is unusable (`state` FAILED, `failure` says why and, in metadata, which topic and
partition): leave its `async with`, take a new one, resume from the committed position.
"""
