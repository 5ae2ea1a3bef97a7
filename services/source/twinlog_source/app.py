"""The composition root of the source service: Spark, a driver for each flow, the gRPC services."""

import random
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

from twinlog.api.source.v1.source_service_pb2 import DESCRIPTOR as SOURCE_API
from twinlog.api.source.v1.source_service_pb2_grpc import add_SourceServiceServicer_to_server
from twinlog.config import Address, ClientConfig, Configuration, Service
from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.raw import DataClientPool, known_producers, open_transactions
from twinlog.machine import spark_environment
from twinlog.model import Flow, TopicPartition
from twinlog.policy.transformed import TopicTransforms
from twinlog.service.access.exposure import lacks
from twinlog.service.app import ServiceContext, ServiceParts
from twinlog.service.clusters import UNKNOWN, Clusters
from twinlog.service.feeds.registry import Decisions
from twinlog.service.grpc_server import GrpcService
from twinlog.service.owner.lease import FlowLease
from twinlog.service.owner.opening import address_of, open_lease, process_name
from twinlog.service.runtime import Loop
from twinlog.telemetry.process import observe_tasks
from twinlog.verify.standing import ProofStanding, by_log
from twinlog_source.api.servicer import SourceServicer
from twinlog_source.config import SourceFlow, source_flows
from twinlog_source.driver.commands import FlowOperations
from twinlog_source.driver.epoch_jobs import EpochJobs
from twinlog_source.driver.flow_driver import FlowDriver
from twinlog_source.driver.flow_monitor import FlowMonitor, PositionsFollower
from twinlog_source.driver.instruments import FlowInstruments, observe_flows
from twinlog_source.driver.moves import PositionMoves
from twinlog_source.driver.ownership import Fence, Ownership
from twinlog_source.driver.state import FlowState
from twinlog_source.driver.stream.lending import (
    Borrower,
    Lending,
    NotLentError,
    lendable_owners,
    refusal_of_open_port,
)
from twinlog_source.driver.stream.task_host import TaskHost
from twinlog_source.driver.stream.task_settings import TaskSettings
from twinlog_source.driver.stream.worker_port import LentPort, WorkerPort, endpoint_of, listen_address
from twinlog_source.driver.stream.worker_servicer import WorkerServicer
from twinlog_source.driver.worker_pool import MOST_WORKERS, WorkerPool, Workers
from twinlog_source.log.facts import ProofFact
from twinlog_source.log.hanging import TakeOver
from twinlog_source.log.internal_topics import InternalTopics
from twinlog_source.log.journal import Journal
from twinlog_source.log.positions import PositionsLog
from twinlog_source.log.producers import Producers
from twinlog_source.partitions.events import Proven
from twinlog_source.partitions.table import PartitionTable
from twinlog_source.pipeline.runner import SparkRunner
from twinlog_source.pipeline.settings import local_cores
from twinlog_source.preserved.target_probe import KafkaTargetProbe
from twinlog_source.records.changing import MakePipe
from twinlog_source.records.pipe import record_pipe
from twinlog_source.records.reach import Reach, over_network
from twinlog_source.records.trial import TransformTrial
from twinlog_source.task.writing.transport import producer_settings
from twinlog_source.topics.flow_back import FlowBack
from twinlog_source.topics.id_tables import IdTables
from twinlog_source.topics.open_transactions import OpenTransactions
from twinlog_source.topics.origins import Origins
from twinlog_source.topics.source_ends import TIMEOUT_SECONDS as ENDS_TIMEOUT_SECONDS
from twinlog_source.topics.source_ends import SourceEnds
from twinlog_source.topics.start_positions import StartPositions
from twinlog_source.verify.standing_proof import StandingProof

WATCH_RETRY_INITIAL_SECONDS = 0.2
WATCH_RETRY_MAX_SECONDS = 5.0
FENCE_SECONDS = 30.0


MakeWorkers = Callable[[ServiceContext, Sequence[SourceFlow], WorkerPort, AsyncExitStack], Workers]
"""Makes what runs the workers; the stack closes it."""


async def build(context: ServiceContext, stack: AsyncExitStack) -> ServiceParts:
    """Connect the parts. Waits neither for brokers nor for Spark."""
    return await build_on(_spark_runner, context, stack)


async def build_on(make_workers: MakeWorkers, context: ServiceContext, stack: AsyncExitStack) -> ServiceParts:
    """The same with workers that run elsewhere."""
    flows = source_flows(context.configuration)
    hosts: dict[Flow, TaskHost] = {}
    servicer = WorkerServicer(hosts)

    async def open_port(listen: Address) -> WorkerPort:
        opened = WorkerPort(
            servicer, listen=listen, meter=context.meter, clock=context.clock, rpc=context.around.rpc
        )
        stack.push_async_callback(opened.stop)
        await opened.start()
        return opened

    port = await open_port(listen_address(context.configuration))
    workers = make_workers(context, flows, port, stack)
    runner = WorkerPool(workers=workers, clock=context.clock)
    servicer.workers = runner
    decisions = Decisions(
        context.peers.channel("configsync"),
        clock=context.clock,
        backoff=context.backoff(WATCH_RETRY_INITIAL_SECONDS, WATCH_RETRY_MAX_SECONDS),
    )
    drivers: dict[Flow, FlowDriver] = {}
    leases = {
        flow.flow: open_lease(
            context,
            flow.flow,
            await context.clusters.get(flow.clients.target_admin),
            megabytes_per_second=partial(_megabytes_per_second, drivers, flow.flow),
        )
        for flow in flows
    }
    drivers |= {
        flow.flow: await _driver(context, flow, leases[flow.flow], decisions, runner, stack, flows=len(flows))
        for flow in flows
    }
    hosts |= {flow: driver.host for flow, driver in drivers.items()}
    monitors = {flow.flow: await _monitor(context, flow, drivers[flow.flow], stack) for flow in flows}
    operations = {
        flow: FlowOperations(driver=driver, clock=context.clock) for flow, driver in drivers.items()
    }
    moves = {
        flow: PositionMoves(driver=driver, source=driver.state.source) for flow, driver in drivers.items()
    }
    make_pipe = _own_pipes(context.configuration, port)
    trials = {
        flow.flow: TransformTrial(
            flow=flow,
            source=await context.clusters.get(flow.clients.source_consumer),
            run_pipe=workers.run_pipe,
            make_pipe=make_pipe,
        )
        for flow in flows
        if flow.expressions is not None
    }
    back = await _flows_back(context, flows, drivers, stack)
    observe_flows(context.meter, list(drivers.values()))
    loops: dict[str, Loop] = {}
    for flow, driver in drivers.items():
        # A coordinator that does not answer stops no copy: the process that copies fences its rivals in any
        # case.
        guarded = leases[flow].guard(driver.run, otherwise=driver.stand_by, stays_in_doubt=True)
        loops[f"flow {flow}"] = guarded
    loops["workers"] = runner.run_workers
    loops["lent cores"] = _lending(context, workers).run
    loops |= {f"lag of {flow}": monitor.run for flow, monitor in monitors.items()}
    loops["decisions of configsync"] = decisions.run
    for each in flows:
        if each.settings.verify_interval_seconds:
            proof = _standing_proof(context, each, drivers[each.flow], make_pipe)
            loops[f"proof of {each.flow}"] = proof.run
    observe_tasks(context.meter)
    return ServiceParts(
        loops=loops,
        first_pass_done=lambda flow: drivers[flow].has_begun,
        grpc=[
            GrpcService(
                name=SOURCE_API.services_by_name["SourceService"].full_name,
                add=add_SourceServiceServicer_to_server,
                servicer=SourceServicer(
                    operations,
                    moves=moves,
                    trials=trials,
                    clusters=context.clusters,
                    back=back,
                    lent_workers=runner.lent_workers,
                    borrower=Borrower(
                        pool=runner,
                        refusal=_refusal_of_cores(context.configuration, flows, workers),
                        reach=LentPort(
                            context.configuration,
                            port,
                            open_port=open_port,
                            own_address=partial(address_of, context),
                        ).place,
                        stop=context.stop,
                    ),
                ),
            ),
        ],
    )


def _lending(context: ServiceContext, workers: Workers) -> Lending:
    def owners() -> Mapping[str, Collection[Flow]]:
        memberships = context.memberships.values()
        if workers.cores is None or any(each.owned() for each in memberships):
            return {}
        return lendable_owners(
            [owner for each in memberships for owner in each.owners()],
            reaches=lambda flow: all(
                status.reachable for status in context.clusters.statuses((flow.source, flow.target))
            ),
            host=socket.gethostname(),
            has_whole_machine=context.configuration.spark.master == "local[*]",
            is_safe=not lacks(context.configuration.security, Service.SOURCE),
        )

    return Lending(
        process=lambda: process_name(context).process,
        workers=workers,
        owners=owners,
        refusal=refusal_of_open_port(context.configuration),
        open_channel=partial(context.peers.open_process, context.name),
        rpc=context.around.rpc,
        clock=context.clock,
    )


def _refusal_of_cores(
    configuration: Configuration, flows: Sequence[SourceFlow], workers: Workers
) -> TwinlogError | None:
    if workers.cores is None:
        return NotLentError("the owner copies on a Spark cluster, whose cores all processes share")
    if any(flow.expressions is not None for flow in flows):
        return NotLentError("the owner's Spark changes records, in jobs beside its workers")
    return refusal_of_open_port(configuration)


def _megabytes_per_second(drivers: Mapping[Flow, FlowDriver], flow: Flow) -> float:
    driver = drivers.get(flow)
    return 0.0 if driver is None else driver.load().bytes_per_second / 1e6


def _spark_runner(
    context: ServiceContext, flows: Sequence[SourceFlow], port: WorkerPort, stack: AsyncExitStack
) -> SparkRunner:
    configuration = context.configuration
    spark = configuration.spark
    cores = local_cores(spark.master) or MOST_WORKERS
    slots = min(sum(flow.settings.max_slots or cores for flow in flows), MOST_WORKERS)
    changing = 3 * sum(flow.settings.max_slots or cores for flow in flows if flow.expressions is not None)
    runner = SparkRunner(
        master=spark.master,
        # The job through which a slot's records flow, the one for what broke it, and the one that says why.
        threads=2 * (slots + changing),
        conf=spark.conf,
        environment=spark_environment,
        driver_endpoint=lambda: endpoint_of(configuration, port.number),
        driver_certificate=port.certificate,
        log_level=configuration.runtime.log_level,
        clock=context.clock,
        with_sql=changing > 0,
    )
    stack.push_async_callback(runner.close)
    return runner


def _own_pipes(configuration: Configuration, port: WorkerPort) -> MakePipe:
    """For records that the service itself has changed: to show them, and to compare them."""
    if configuration.spark.is_local:
        return record_pipe
    bind = listen_address(configuration).host.strip("[]")

    def reach() -> Reach:
        host, _, _ = endpoint_of(configuration, port.number).rpartition(":")
        return over_network(bind=bind, host=host.strip("[]"))

    return partial(record_pipe, reach=reach)


async def _driver(
    context: ServiceContext,
    flow: SourceFlow,
    lease: FlowLease,
    decisions: Decisions,
    runner: WorkerPool,
    stack: AsyncExitStack,
    *,
    flows: int,
) -> FlowDriver:
    clients = flow.clients
    source = await context.clusters.get(clients.source_admin)
    target = await context.clusters.get(clients.target_admin)
    reading = await context.clusters.get(clients.target_consumer)
    writing = await context.clusters.get(clients.target_producer)
    sources = await context.clusters.get(clients.source_consumer)
    topic = flow.settings.offset_storage.topic
    writer = await stack.enter_async_context(
        writing.writer(introduce=lambda producer_id: producers.introduction(producer_id))
    )
    positions = PositionsLog(
        list_offsets=target.list_offsets,
        reader=await stack.enter_async_context(reading.reader(read_committed=True)),
        topic=topic,
        partition_count=0,
        source_alias=flow.flow.source,
        connector_name=flow.settings.connector_name,
        clock=context.clock,
    )
    table = PartitionTable(is_heartbeats=flow.policy.is_heartbeats_topic)
    instruments = FlowInstruments(
        context.meter, flow, table, positions.control, context.clock, positions.gaps
    )
    journal = Journal(
        flow=flow.flow,
        connector_name=flow.settings.connector_name,
        topic=topic,
        writer=writer,
        clock=context.clock,
    )
    producers = Producers(
        journal=journal,
        control=positions.control,
        cluster_id=context.clusters.cluster_id,
        clock=context.clock,
    )
    session = _session(clients.data_producer, stack, FENCE_SECONDS)
    ownership = Ownership(
        flow=flow,
        instance_id=context.instance_id,
        internal=InternalTopics(flow=flow, source=source, target=target),
        positions=positions,
        journal=journal,
        fence=_fence(flow, positions, session),
        known_producers=partial(known_producers, session, timeout_seconds=FENCE_SECONDS),
        producers=producers,
        clock=context.clock,
    )
    decisions.add(flow.flow, target)
    for partner in flow.partners:
        decisions.add(partner.flow, target if partner.flow.target == flow.flow.target else source)
    state = FlowState(
        flow=flow,
        ownership=ownership,
        decisions=decisions,
        source=source,
        target=target,
        positions=positions,
        starts=StartPositions(
            source=source,
            read_committed=flow.settings.read_committed,
            group=flow.settings.start_group,
            time_ms=flow.settings.start_time_ms,
            ago_ms=flow.settings.reset_duration_ms,
            clock=context.clock,
        ),
        journal=journal,
        probe=KafkaTargetProbe(
            session, timeout_seconds=FENCE_SECONDS, transaction_timeout_seconds=_transaction_timeout(flow)
        ),
        origins=Origins(
            ids=IdTables(
                flow=flow,
                source=source,
                reader=await stack.enter_async_context(sources.reader(read_committed=False)),
                target=target,
                target_reader=await stack.enter_async_context(reading.reader(read_committed=False)),
                cluster_id=context.clusters.cluster_id,
                clock=context.clock,
            ),
            target=target,
            positions=positions,
            topics_of=lambda other: decisions.topics(other) if decisions.settled(other) else None,
        ),
        clock=context.clock,
        on_gap=instruments.gap,
        topics_changed=decisions.subscribe(),
        table=table,
        flows=flows,
    )
    jobs = EpochJobs(flow=flow.flow, runner=runner, instruments=instruments, clock=context.clock)
    return FlowDriver(
        state=state,
        jobs=jobs,
        host=TaskHost(
            state=state,
            tasks=TaskSettings(flow=flow, flows=flows),
            jobs=jobs,
            instruments=instruments,
        ),
        is_elected=lambda: lease.is_elected,
        standing=lease.refusal,
        is_probed=lambda probed: all(
            status.reason != UNKNOWN for status in context.clusters.statuses((probed.source, probed.target))
        ),
        refusal=lambda asked: refusal(context.clusters, asked),
        instruments=instruments,
        random=random.random,
        max_slots=flow.settings.max_slots,
        epoch_seconds=flow.settings.epoch_seconds,
        longest_epoch_seconds=flow.settings.longest_epoch_seconds,
    )


async def _flows_back(
    context: ServiceContext,
    flows: Sequence[SourceFlow],
    drivers: Mapping[Flow, FlowDriver],
    stack: AsyncExitStack,
) -> dict[Flow, FlowBack]:
    """Those that the file does not have, of flows that keep names."""
    found = {}
    for each in flows:
        back = Flow(each.flow.target, each.flow.source)
        if each.policy.tracks_topic_sources or any(partner.flow == back for partner in each.partners):
            continue
        sources = await context.clusters.get(each.clients.source_consumer)
        reader = await stack.enter_async_context(sources.reader(read_committed=True))
        found[back] = FlowBack(ids=drivers[each.flow].state.origins.ids, reader=reader)
    return found


async def _monitor(
    context: ServiceContext, flow: SourceFlow, driver: FlowDriver, stack: AsyncExitStack
) -> FlowMonitor:
    state = driver.state
    # Separate connections, so that a hanging broker of the others does not delay these.
    admin = await context.clusters.get(flow.clients.source_admin, timeout_seconds=ENDS_TIMEOUT_SECONDS)
    reading = await context.clusters.get(flow.clients.source_consumer, timeout_seconds=ENDS_TIMEOUT_SECONDS)
    read_committed = flow.settings.read_committed
    return FlowMonitor(
        book=state,
        ends=SourceEnds(
            source=admin,
            reader=await stack.enter_async_context(reading.reader(read_committed=read_committed)),
            table=state.table,
            read_committed=read_committed,
            clock=context.clock,
            flows=state.flows,
        ),
        transactions=OpenTransactions(
            source=admin,
            ask=partial(
                open_transactions, _session(flow.clients.source_consumer, stack, ENDS_TIMEOUT_SECONDS)
            ),
            table=state.table,
            clock=context.clock,
        )
        if read_committed
        else None,
        follower=PositionsFollower(book=state, decisions=state.decisions, is_owned=lambda: driver.owned),
        facts=driver.facts,
        flows=state.flows,
    )


def _standing_proof(
    context: ServiceContext, flow: SourceFlow, driver: FlowDriver, make_pipe: MakePipe
) -> StandingProof:
    def tell(found: Mapping[TopicPartition, ProofStanding]) -> None:
        routes = driver.state.decisions.ever_routed(flow.flow)
        proofs = by_log(found, lambda topic: routes[topic].routed_from if topic in routes else topic)
        driver.state.note(Proven(proofs=proofs))

    async def store(facts: Collection[ProofFact], gone: Collection[TopicPartition]) -> None:
        await driver.state.record(facts)
        for partition in gone:
            await driver.state.journal.retract("proof", partition.topic, partition.partition)
            driver.state.control.retract("proof", partition.topic, partition.partition)

    return StandingProof(
        configuration=context.configuration,
        flow=flow.flow,
        interval_seconds=flow.settings.verify_interval_seconds,
        max_bytes_per_second=flow.settings.verify_max_bytes_per_second,
        is_owned=lambda: driver.owned,
        tell=tell,
        stored=lambda: driver.state.control.proofs,
        store=store,
        run_pipe=driver.jobs.runner.workers.run_pipe,
        make_pipe=make_pipe,
        may_route=TopicTransforms(flow.transforms, flow.flow.source).may_route,
        clock=context.clock,
    )


def refusal(clusters: Clusters, flow: Flow) -> TwinlogError | None:
    """Why a flow must not be copied: both ends are the same cluster, or a cluster id is not known yet."""
    for status in clusters.statuses((flow.source, flow.target)):
        if clusters.cluster_id(status.alias) is None:
            return TransientKafkaError(
                f"cluster {status.alias} has not been reached yet: {status.message}", reason=status.reason
            )
    return clusters.refusal(flow)


def _session(client: ClientConfig, stack: AsyncExitStack, timeout_seconds: float) -> DataClientPool:
    """It connects when it is first used."""
    options = aiokafka_client_options(client.properties, alias=client.alias)
    session = DataClientPool(client.alias, options, timeout_seconds=timeout_seconds)
    stack.push_async_callback(session.close)
    return session


def _transaction_timeout(flow: SourceFlow) -> float:
    properties = flow.clients.data_producer.properties
    return producer_settings(properties, alias=flow.flow.target).transaction_timeout_seconds


def _fence(flow: SourceFlow, positions: PositionsLog, session: DataClientPool) -> Fence:
    take_over = TakeOver(
        session=session,
        positions=positions,
        target_topic=lambda topic: flow.policy.format_remote_topic(flow.flow.source, topic),
        timeout_seconds=FENCE_SECONDS,
        transaction_timeout_seconds=_transaction_timeout(flow),
    )
    return take_over.take
