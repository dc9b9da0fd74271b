"""`POST /v1/jobs/batch`: many submissions in one request, each for itself.

Promises: an item is admitted or refused as it would be alone, whatever becomes of the others; items are admitted in
their order; a repeat with the same Idempotency-Key makes no job twice. The calls to the store share its pipelines, but
batches never queue up more there than many single requests would: everybody else's calls wait behind what is queued.
"""

import asyncio

from aiohttp import web

from contracts.api import GenerationJobData, JobBatch
from contracts.store.replies import Submits
from services.ingest.admission.admit import item_key
from services.ingest.context import Context
from services.ingest.edge.body import read_body
from services.ingest.edge.middleware import REQUEST_ID, as_problem
from services.ingest.edge.problems import below, document, whole_pause_s
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.submissions import Envelope, Submissions, rates_of
from services.ingest.handlers.submit import read_envelope
from services.ingest.requests import parse_body, validate
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.rates import SUBMIT

BODIES_AT_ONCE = 10  # of repeats: a body may have a megabyte
# Items under way of one batch (one pipeline of the store) and of all batches; batches take turns by it.
ITEMS_AT_ONCE = 12
ALL_AT_ONCE = 96

# What became of an item, and what the tenant's rate of submits left it then; None where nothing was counted.
Outcome = tuple[JsonObject, Submits | None]


class BatchHandler:
    """The route of many jobs."""

    def __init__(self, context: Context, submissions: Submissions) -> None:
        self._context = context
        self._submissions = submissions
        self._room = asyncio.Semaphore(ALL_AT_ONCE)

    async def submit_batch(self, request: web.Request, caller: Caller) -> web.Response:
        """Admit each item; the answer says for each what became of it."""
        check_query(request, frozenset())
        envelope = read_envelope(request, caller)
        items, views = asyncio.Semaphore(ITEMS_AT_ONCE), asyncio.Semaphore(BODIES_AT_ONCE)

        async def outcome(index: int, item: object) -> Outcome:
            async with items, self._room:
                one = envelope._replace(key_hash=item_key(envelope.key_hash, index))
                return await self._outcome(request, one, index, item, views)

        with self._context.room.share() as share:
            batch = parse_body(JobBatch, await read_body(request, self._context.body_limits, share))
            self._context.secret("users")  # before the store was opened there is one answer for all
            outcomes = await asyncio.gather(*(outcome(index, item) for index, item in enumerate(batch.jobs)))
        counted = [submits for _, submits in outcomes if submits is not None]
        rest = min(counted, key=lambda submits: submits.left, default=None)
        return json_answer({"data": [told for told, _ in outcomes]}, headers=rates_of(self._context, caller, rest))

    async def _outcome(
        self, request: web.Request, envelope: Envelope, index: int, item: object, views: asyncio.Semaphore
    ) -> Outcome:
        """Submit one item and say what became of it; raises nothing, so that the others are answered."""
        answer: JsonObject = {"index": index, "status": 0, "job": None, "problem": None}
        answer |= {"idempotentReplayed": False, "deduplicated": False}
        try:
            submitted = await self._submissions.submit(envelope, validate(GenerationJobData, item))
            admitted = submitted.admitted
            answer |= {"idempotentReplayed": admitted.is_repeat, "deduplicated": admitted.is_duplicate}
            async with views:
                job = await self._submissions.view(submitted)
            return answer | {"status": 200 if admitted.is_old else 201, "job": job}, admitted.submits
        except Exception as error:
            request_id = request[REQUEST_ID]
            problem = below(as_problem(error, request_id), f"/jobs/{index}")
            told = document(problem, request.path, request_id)
            pause_s = whole_pause_s(problem)
            more = {} if pause_s is None else {"retryAfterSeconds": pause_s}
            answer |= {"status": problem.kind.status, "problem": told | more}
            return answer, Submits(0) if SUBMIT in problem.policies else None
