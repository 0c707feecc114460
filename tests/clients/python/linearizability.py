"""Whether a history of requests is linearizable: whether there is one order of them, in keeping with when each began and
ended, in which every answer is what the API promises.

Owns the rules of that promise for objects with resource versions, and the search for an order (Wing and Gong's, with the
memory of states visited that Lowe added). Knows nothing of the server: it reads histories alone, and never talks to anybody.
"""

import dataclasses

# Search steps after which no verdict is given. A history of a few thousand requests takes about as many steps as it has requests.
STEPS_MAX = 2_000_000


@dataclasses.dataclass(frozen=True)
class Request:
    """One request and its answer. Times are of one monotonic clock; `ended` of an unanswered request is when its server died.

    `what` and `answer` are, with a key first in all but "list":

    * ("get", key) -> ("found", uid, version, value) or ("absent",)
    * ("list",) -> ("listed", version of the list, {key: (uid, version, value)})
    * ("create", key, value) -> ("stored", uid, version) or ("exists",)
    * ("update", key, version it was made from, value) -> ("stored", uid, version), ("conflict",) or ("absent",)
    * ("patch", key, value) -> ("stored", uid, version) or ("absent",)
    * ("delete", key, uid it is for or None) -> ("deleted", uid), ("conflict",) or ("absent",)

    `answer` None means that nobody knows: it took effect before `ended`, or never. No two requests write one value.
    """

    began: float
    ended: float
    what: tuple
    answer: tuple | None


class Undecided(Exception):
    """No order was found, and not everything was tried."""


class State:
    """What is stored: the version of the newest write, and (uid, version, value) of each key. A value; never changed."""

    __slots__ = ("newest", "objects", "_hash")

    def __init__(self, newest=0, objects=()):
        self.newest = newest
        self.objects = objects
        self._hash = hash((newest, objects))

    def __eq__(self, other):
        return (self.newest, self.objects) == (other.newest, other.objects)

    def __hash__(self):
        return self._hash

    def get(self, key):
        return dict(self.objects).get(key)

    def put(self, newest, key, entry):
        objects = dict(self.objects)
        objects.pop(key, None)
        if entry is not None:
            objects[key] = entry
        return State(newest, tuple(sorted(objects.items())))


def order(history):
    """An order of the requests that explains every answer, as indices of `history` (unanswered ones that never took effect
    are not in it), or None where there is none."""
    identities = _identities(history)
    by_end = sorted(range(len(history)), key=lambda i: history[i].ended)
    by_begin = sorted(range(len(history)), key=lambda i: history[i].began)
    must = sum(1 << i for i, request in enumerate(history) if request.answer is not None)
    visited = set()
    steps = 0
    # Depth first: what is done, the state then, the latest beginning among what is done, the order so far.
    stack = [(0, State(), float("-inf"), None)]
    while stack:
        done, state, latest, path = stack.pop()
        if done & must == must:
            return _unwound(path)
        if (done, state) in visited:
            continue
        visited.add((done, state))
        steps += 1
        if steps > STEPS_MAX:
            raise Undecided(f"{len(history)} requests, {steps} steps")
        # Nothing may come before a request that has ended before it began.
        horizon = next(history[i].ended for i in by_end if must >> i & 1 and not done >> i & 1)
        following = []
        for i in _open(by_begin, history, done, horizon):
            request = history[i]
            if latest > request.ended:
                continue
            after = _step(state, request, identities)
            if after is not None:
                following.append((request.answer is None, request.ended, i, after))
        # What was answered, and what ended first, is tried first: it lies on top of the stack.
        for _, _, i, after in sorted(following, key=lambda one: one[:3], reverse=True):
            stack.append((done | 1 << i, after, max(latest, history[i].began), (i, path)))
    return None


def _open(by_begin, history, done, horizon):
    """Requests not done that began before the horizon."""
    for i in by_begin:
        if history[i].began > horizon:
            return
        if not done >> i & 1:
            yield i


def _unwound(path):
    found = []
    while path is not None:
        i, path = path
        found.append(i)
    return found[::-1]


def _identities(history):
    """The uid and version of each value anybody has seen stored."""
    seen = {}
    for request in history:
        what, answer = request.what, request.answer
        if answer is None:
            continue
        if answer[0] == "found":
            seen[answer[3]] = answer[1:3]
        elif answer[0] == "listed":
            for uid, version, value in answer[2].values():
                seen[value] = (uid, version)
        elif answer[0] == "stored":
            seen[what[-1]] = answer[1:]
    return seen


def _step(state, request, identities):
    """The state after the request, if its answer is right in this one; else None."""
    verb, answer = request.what[0], request.answer
    if verb == "list":
        right = answer is not None and answer[1] >= state.newest and tuple(sorted(answer[2].items())) == state.objects
        return State(answer[1], state.objects) if right else None
    key = request.what[1]
    present = state.get(key)
    if verb == "get":
        if answer is None:
            return None
        return state if answer == (("absent",) if present is None else ("found", *present)) else None
    refusal = _refusal(request.what, present)
    if refusal is not None:
        return state if answer == (refusal,) else None
    held = present[0] if present else None
    if verb == "delete":
        if answer is not None and (answer[0] != "deleted" or not _may_be(answer[1], held)):
            return None
        return state.put(state.newest, key, None)
    value = request.what[-1]
    # A version nobody has seen is named by nobody; the uid may still be learned from what is written over it.
    uid, version = identities.get(value, (held, None))
    if answer is not None and answer != ("stored", uid, version):
        return None
    if not _may_be(uid, held) or (version is not None and version <= state.newest):
        return None
    return state.put(state.newest if version is None else version, key, (uid, version, value))


def _refusal(what, present):
    """Why the server has to refuse the write, in its own word, or None."""
    verb = what[0]
    if verb == "create":
        return "exists" if present is not None else None
    if present is None:
        return "absent"
    if verb == "update" and what[2] != present[1]:
        return "conflict"
    if verb == "delete" and what[2] is not None and not _may_be(what[2], present[0]):
        return "conflict"
    return None


def _may_be(uid, held):
    """Whether an object whose uid is `held` (None: not known) may have this one."""
    return held is None or uid == held
