"""The operators' commands on a flow: plan, apply, explain, ACLs, rules."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from twinlog.clock import Clock
from twinlog.errors import ConflictError, KafkaError, NotFoundError, StateError, TransientKafkaError
from twinlog.kafka.ports import KafkaCluster, TopicDescription
from twinlog.policy.expected_offsets import ExpectedOffsets, UncopiedTopic, expected_offsets
from twinlog.service.feeds.replicated_topics import left_out
from twinlog.service.feeds.rules_record import NO_RULES, rules_noted, rules_told
from twinlog.service.owner.lease import FlowLease
from twinlog_configsync.access.acl_plan import AclEntry, list_acls
from twinlog_configsync.access.acl_rules import TranslatedAcl
from twinlog_configsync.flow.known_flow import ANSWER_SECONDS
from twinlog_configsync.flow.passes import FlowPasses
from twinlog_configsync.model.actions import Action, Applied, CreateTopic
from twinlog_configsync.model.observation import AclObservation, World, is_absent
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.records import PlanRecord
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.explain import Explained, Explanation, explain
from twinlog_configsync.planning.live_rules import RuleChange, RulesView, change_rules, view_rules
from twinlog_configsync.planning.plan import Plan

_log = structlog.stdlib.get_logger(__name__)

CLEANUP_POLICY: Final = "cleanup.policy"
TOPIC_KEYS: Final = ("topics", "topics.exclude", "heartbeats.replication.enabled")
"""The rules that decide whether a topic is replicated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who requested a change, and from where."""

    by: str = ""
    peer: str = ""


NOBODY: Final = Asked()

MOST_NOTED: Final = 10
"""Most actions of an applied plan that its audit record spells out; it also has their total number."""
MOST_NOTED_CHARACTERS: Final = 300
"""The limit for each action."""


class FlowCommands:
    """Every command waits for a running pass, and is bounded like a pass."""

    def __init__(
        self,
        passes: FlowPasses,
        *,
        clock: Clock,
        wake: Callable[[], None],
        owner: FlowLease,
    ) -> None:
        """`wake` starts a pass over everything at once."""
        self._owner = owner
        self._passes = passes
        self._clock = clock
        self._wake = wake

    async def preview(self, scopes: Collection[Scope] = ()) -> tuple[Plan, World]:
        """Plan the present changes (in all parts that the flow syncs if `scopes` is empty); return the plan
        and the observation.

        Changes nothing but the registry, which stores the plan's id. Raises as `FlowPasses.look`, and
        StateError (OWNED_ELSEWHERE).
        """
        return await self._owner.hold(lambda: self._preview(scopes))

    async def _preview(self, scopes: Collection[Scope]) -> tuple[Plan, World]:
        async with self._passes.lock, self._passes.turn():
            chosen = frozenset(scopes) or frozenset(self._passes.rules.intervals_seconds)
            world = await self._passes.look(chosen)
            plan = await self._passes.plan(world, chosen)
            record = PlanRecord(
                plan_id=plan.plan_id, scopes=tuple(sorted(chosen)), made_at_ms=self._clock.now_ms()
            )
            await self._passes.keep(replace(self._passes.memory, last_plan=record))
            return plan, world

    def refusal(self, action: Action) -> KafkaError | None:
        """Why the target refused it when it was last tried."""
        return self._passes.refusal(action)

    async def expected_offsets(self, plan: Plan) -> Mapping[str, ExpectedOffsets]:
        """The expected offsets of the copies that a plan creates, by source topic. Topics whose log starts
        cannot be read are left out."""
        created = [action for action in plan.changes if isinstance(action, CreateTopic)]
        return await self._expected(
            {action.source_topic: action.partition_count for action in created},
            {action.source_topic: action.configs.get(CLEANUP_POLICY, "") for action in created},
        )

    async def _expected(
        self, partition_counts: Mapping[str, int], cleanup_policies: Mapping[str, str]
    ) -> Mapping[str, ExpectedOffsets]:
        """Of the copies of these source topics."""
        try:
            starts = await self._passes.log_starts(partition_counts)
        except KafkaError as error:
            flow = str(self._passes.flow)
            _log.info("log_starts_not_read", flow=flow, reason=error.reason, error=str(error))
            return {}
        known = [
            UncopiedTopic(name=name, cleanup_policy=cleanup_policies[name], log_starts=starts[name])
            for name, count in partition_counts.items()
            if len(starts[name]) == count
        ]
        rules = self._passes.rules
        return expected_offsets(known, rules.offsets, exactly_once=rules.exactly_once)

    async def apply(self, plan_id: str, stop: asyncio.Event, *, asked: Asked = NOBODY) -> Applied:
        """Carry out the last plan of `preview`, if it is still valid.

        Raises NotFoundError (PLAN_UNKNOWN) for any other id, ConflictError (PLAN_STALE) when the clusters
        have changed, and as `preview`. If this process loses the flow meanwhile, part of the plan may have
        been done; the next plan has the rest.
        """
        return await self._owner.hold(lambda: self._apply(plan_id, stop, asked))

    async def _apply(self, plan_id: str, stop: asyncio.Event, asked: Asked) -> Applied:
        async with self._passes.lock, self._passes.turn():
            scopes = self._scopes_of(plan_id)
            world = await self._passes.look(scopes)
            plan = await self._passes.plan(world, scopes)
            if plan.plan_id != plan_id:
                raise ConflictError(
                    f"{self._passes.flow}: the clusters or the rules have changed since plan {plan_id} was "
                    "made: make a new plan, and apply that",
                    reason=SyncReason.PLAN_STALE,
                    metadata={
                        "flow": str(self._passes.flow),
                        "plan_id": plan_id,
                        "plan_id_now": plan.plan_id,
                    },
                )
            outcome = await self._passes.carry_out(plan, world, stop)
            after = {
                "applied": str(len(outcome.applied)),
                "refused": str(len(outcome.refused)),
                **{
                    f"action {number}": str(action)[:MOST_NOTED_CHARACTERS]
                    for number, action in enumerate(outcome.applied[:MOST_NOTED], 1)
                },
            }
            try:
                await self._note("ApplySync", asked, before={"plan_id": plan_id}, after=after)
            except KafkaError as error:
                # The changes were made; an error here would deny that.
                _log.warning(
                    "change_not_recorded",
                    flow=str(self._passes.flow),
                    plan_id=plan_id,
                    reason=error.reason,
                    message=str(error),
                )
            return outcome

    async def _note(
        self, method: str, asked: Asked, *, before: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        changed = self._passes.memory.with_change(
            method, by=asked.by, peer=asked.peer, at_ms=self._clock.now_ms(), before=before, after=after
        )
        await self._passes.keep(changed)

    async def explain(self, topic: str) -> list[Explanation]:
        """Explain why the topic of this name is replicated or not. A cluster that does not answer is an
        answer, not an error. A standby answers as the owner would."""
        await self._passes.know_others()
        rules = self._passes.loop_guard.guarded_now(self._passes.own_rules)
        on_source = await _find(self._passes.source, topic)
        on_target = await _find(self._passes.target, topic)
        explanations = explain(
            topic,
            rules.selector,
            self._passes.memory.entries,
            rules.deletes,
            on_source=on_source,
            on_target=on_target,
        )
        told = "; ".join(self.rules_told(TOPIC_KEYS))
        source = self._passes.flow.source
        return [
            replace(
                each,
                rule=f"{each.rule}; {told}" if told and each.cluster == source else each.rule,
                offsets=await self._offsets_to_come(on_source, each.target_topic)
                if each.verdict is Explained.WAITING and isinstance(on_source, TopicDescription)
                else None,
            )
            for each in explanations
        ]

    async def _offsets_to_come(self, topic: TopicDescription, target_topic: str) -> ExpectedOffsets | None:
        """Of a source topic whose copy does not exist yet; None where it does, or nobody can tell."""
        if not is_absent(await _find(self._passes.target, target_topic)):
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                configs = await self._passes.source.describe_topic_configs(
                    [topic.name], keys=[CLEANUP_POLICY]
                )
                entries = configs[topic.name]
                if isinstance(entries, KafkaError):
                    return None
                policy = next((entry.value or "" for entry in entries if entry.name == CLEANUP_POLICY), "")
                found = await self._expected({topic.name: topic.partition_count}, {topic.name: policy})
        except (KafkaError, TimeoutError):
            return None
        return found.get(topic.name)

    async def acls(self) -> list[AclEntry]:
        """What the flow does about each ACL. Raises as `FlowPasses.look`, and StateError when a cluster has
        no authorizer or does not show its ACLs."""
        async with self._passes.lock, self._passes.turn():
            world = await self._passes.look([Scope.ACLS])
            translations: list[TranslatedAcl] = []
            if isinstance(world.acls, AclObservation):
                translations = await self._passes.translated(world.acls, world.topics)
            made = self._passes.memory.made_acls
        if not isinstance(world.acls, AclObservation):
            problem = world.problem(Scope.ACLS)
            raise StateError(
                problem.message if problem else "", reason=problem.reason if problem else SyncReason.STARTING
            )
        return await asyncio.to_thread(list_acls, world.acls, translations, made=made)

    def rules_told(self, keys: Collection[str] | None = None) -> list[str]:
        """Each rule that is not the file's, as a sentence. Only of these keys; None = all."""
        passes = self._passes
        return rules_told(passes.flow, passes.memory.rules or NO_RULES, passes.config.file.values, keys=keys)

    def rules(self) -> RulesView:
        """The present rules. Before the registry was read, those of the file, and the view says so."""
        problem = self._passes.rules_problem
        if not self._passes.loaded:
            problem = f"the changed rules have not been read yet: {self._passes.status.message}"
        return view_rules(
            self._passes.memory.rules, file_values=self._passes.config.file.values, problem=problem
        )

    async def update_rules(
        self,
        changes: Sequence[RuleChange],
        *,
        expected_revision: int | None = None,
        dry_run: bool = False,
        asked: Asked = NOBODY,
    ) -> RulesView:
        """Change rules together or not at all: check them, store them on the target, and apply them with the
        next pass, which starts at once.

        Raises ConfigError for values that would be invalid in the file, ConflictError (RULES_CHANGED) when
        the revision is not the expected one, StateError (OWNED_ELSEWHERE), and as `FlowPasses.open`.
        """
        return await self._owner.hold(
            lambda: self._update_rules(
                changes, expected_revision=expected_revision, dry_run=dry_run, asked=asked
            )
        )

    async def _update_rules(
        self,
        changes: Sequence[RuleChange],
        *,
        expected_revision: int | None,
        dry_run: bool,
        asked: Asked,
    ) -> RulesView:
        passes = self._passes
        async with passes.lock:
            await passes.open_registry()
            known = passes.memory.rules
            revision = 0 if known is None else known.revision
            if expected_revision not in (None, revision):
                raise ConflictError(
                    f"{passes.flow}: the rules are at version {revision}, not {expected_revision}: somebody "
                    "changed them; look again, then decide",
                    reason=SyncReason.RULES_CHANGED,
                    metadata={"flow": str(passes.flow), "version": str(revision)},
                )
            before = known or NO_RULES
            record = change_rules(
                changes, before, passes.config.file, by=asked.by, now_ms=self._clock.now_ms()
            )
            rules = await passes.rebuilt(record.values)
            await passes.know_others()
            await asyncio.to_thread(passes.loop_guard.refuse, rules, passes.known_names)
            stopped = await asyncio.to_thread(left_out, passes.topics, rules.selector)
            if not dry_run and record != before:
                changed = passes.memory.with_change(
                    "UpdateRules",
                    by=asked.by,
                    peer=asked.peer,
                    at_ms=record.updated_at_ms,
                    before=rules_noted(before),
                    after=rules_noted(record),
                )
                await passes.keep(replace(changed, rules=record))
                passes.rules, passes.rules_problem = rules, ""
                self._wake()
        return view_rules(
            known if record == before else record,
            file_values=passes.config.file.values,
            problem="",
            stopped=stopped,
        )

    def _scopes_of(self, plan_id: str) -> frozenset[Scope]:
        last = self._passes.memory.last_plan
        if last is None or last.plan_id != plan_id:
            raise NotFoundError(
                f"{self._passes.flow}: no plan {plan_id}; the last one is {last.plan_id if last else 'none'}"
                ": plan again",
                reason=SyncReason.PLAN_UNKNOWN,
                metadata={"flow": str(self._passes.flow), "plan_id": plan_id},
            )
        return frozenset(Scope(scope) for scope in last.scopes)


async def _find(cluster: KafkaCluster, topic: str) -> TopicDescription | KafkaError:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return (await cluster.describe_topics([topic]))[topic]
    except TimeoutError:
        return TransientKafkaError(f"no answer within {ANSWER_SECONDS:g} s", reason="KAFKA_TIMEOUT")
    except KafkaError as error:
        return error
