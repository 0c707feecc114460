"""Whether a history of requests is linearizable: whether there is one order of them, in keeping with when each began and
ended, in which every answer is what the API promises; and whether what lists say of a moment is what watches told up to it.

Owns the rules of that promise for objects with resource versions, and the search for an order (Wing and Gong's, with the
memory of states visited that Lowe added). Knows nothing of the server: it reads histories alone, and never talks to anybody.
"""

import dataclasses

# Search steps after which no verdict is given. A history of a few thousand requests takes about as many steps as it has requests.
STEPS_MAX = 2_000_000


@dataclasses.dataclass(frozen=True)
class Request:
    """One request and its answer. Times are of one monotonic clock; `ended` of an unanswered request is when its server died.

    An object is (uid, version, token, main, status): the token is of its last write, and no two writes have one; `main` and `status`
    are what the last write of the object and of its status subresource put there. `what` and `answer` are:

    * ("get", key) -> ("found", *object) or ("absent",)
    * ("list", prefix of the keys) -> ("listed", version of the list, {key: object})
    * ("create", key, token) -> ("stored", uid, version) or ("exists",)
    * ("update", key, token, version it was made from) -> ("stored", uid, version), ("conflict",) or ("absent",)
    * ("patch", key, token), and ("status", key, token) of the status -> ("stored", uid, version) or ("absent",)
    * ("apply", key, token) -> ("stored", uid, version): it makes what is not there
    * ("delete", key, uid it is for or None) -> ("deleted", uid), ("conflict",) or ("absent",)
    * ("drop", key) -> ("gone",): part of a deletion of many, which takes what has the name, if anything has it

    `answer` None means that nobody knows: it took effect before `ended`, or never.
    """

    began: float
    ended: float
    what: tuple
    answer: tuple | None


class Undecided(Exception):
    """No order was found, and not everything was tried."""


class State:
    """What is stored: the version of the newest write, and the object of each key. A value; never changed."""

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
    readers = _readers(history)
    ranks = {i: rank for i, request in enumerate(history) if (rank := _rank(request, identities))}
    by_rank = sorted((i for i in ranks if history[i].answer is not None), key=ranks.get)
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
        turn = next((ranks[i] for i in by_rank if not done >> i & 1), (float("inf"),))
        following = []
        for i in _open(by_begin, history, done, horizon):
            request = history[i]
            if latest > request.ended or ranks.get(i, turn) > turn:
                continue
            after = _step(state, request, identities)
            if after is None or _hides(request.what[1], state, after, readers, done):
                continue
            one = (request.answer is None, request.ended, i, after)
            if after is state and request.answer is not None and request.began <= latest:
                # It changes nothing and forbids nothing: later it could not be better.
                following = [one]
                break
            following.append(one)
        # What was answered, and what ended first, is tried first: it lies on top of the stack.
        for _, _, i, after in sorted(following, key=lambda one: one[:3], reverse=True):
            stack.append((done | 1 << i, after, max(latest, history[i].began), (i, path)))
    return None


def _readers(history):
    """Who read each version of an object, as bits by index."""
    readers = {}
    for i, request in enumerate(history):
        if request.answer is None:
            continue
        if request.answer[0] == "found":
            read = {request.what[1]: request.answer[1:]}
        elif request.answer[0] == "listed":
            read = request.answer[2]
        else:
            continue
        for key, entry in read.items():
            readers[key, *entry[:2]] = readers.get((key, *entry[:2]), 0) | 1 << i
    return readers


def _hides(key, before, after, readers, done):
    """Whether somebody who is still to come read what this step writes over: no version comes back."""
    entry = before.get(key)
    if entry is None or after.get(key) == entry:
        return False
    return bool(readers.get((key, *entry[:2]), 0) & ~done)


def _rank(request, identities):
    """Where the request stands among all that have a version: these follow one another in the order of versions, and a list
    comes after the write it has the version of. None if it has none."""
    if request.what[0] == "list":
        return request.answer and (request.answer[1], 1)
    if request.answer is not None and request.answer[0] == "stored":
        return (request.answer[2], 0)
    if request.answer is None and request.what[0] not in ("get", "delete", "drop", "list") and request.what[2] in identities:
        return (identities[request.what[2]][1], 0)
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
    """The uid and version of each token anybody has seen stored."""
    seen = {}
    for request in history:
        what, answer = request.what, request.answer
        if answer is None:
            continue
        if answer[0] == "found":
            seen[answer[3]] = answer[1:3]
        elif answer[0] == "listed":
            for uid, version, token, _, _ in answer[2].values():
                seen[token] = (uid, version)
        elif answer[0] == "stored":
            seen[what[2]] = answer[1:]
    return seen


def _step(state, request, identities):
    """The state after the request, if its answer is right in this one; else None."""
    verb, key, answer = request.what[0], request.what[1], request.answer
    if verb == "list":
        stored = tuple(one for one in state.objects if one[0].startswith(key))
        right = answer is not None and answer[1] >= state.newest and tuple(sorted(answer[2].items())) == stored
        return State(answer[1], state.objects) if right else None
    present = state.get(key)
    if verb == "get":
        if answer is None:
            return None
        return state if answer == (("absent",) if present is None else ("found", *present)) else None
    if verb == "drop":
        # One that nobody knows of and that does nothing need not be tried.
        return state.put(state.newest, key, None) if answer is not None or present is not None else None
    refusal = _refusal(request.what, present)
    if refusal is not None:
        return state if answer == (refusal,) else None
    held = present[0] if present else None
    if verb == "delete":
        if answer is not None and (answer[0] != "deleted" or not _may_be(answer[1], held)):
            return None
        return state.put(state.newest, key, None)
    token = request.what[2]
    # A version nobody has seen is named by nobody; the uid may still be learned from what is written over it.
    uid, version = identities.get(token, (held, None))
    if answer is not None and answer != ("stored", uid, version):
        return None
    if not _may_be(uid, held) or (version is not None and version <= state.newest):
        return None
    main, status = present[3:] if present else (None, None)
    main, status = (main, token) if verb == "status" else (token, status)
    return state.put(state.newest if version is None else version, key, (uid, version, token, main, status))


def _refusal(what, present):
    """Why the server has to refuse the write, in its own word, or None."""
    verb = what[0]
    if verb == "create":
        return "exists" if present is not None else None
    if verb == "apply":
        return None
    if present is None:
        return "absent"
    if verb == "update" and what[3] != present[1]:
        return "conflict"
    if verb == "delete" and what[2] is not None and not _may_be(what[2], present[0]):
        return "conflict"
    return None


def _may_be(uid, held):
    """Whether an object whose uid is `held` (None: not known) may have this one."""
    return held is None or uid == held


def torn(told, lists):
    """The first of the lists that is not what was stored at its version, with what was; None if there is none.

    `told` is what a watch from before the first write has told: (version, key, object or None), in its order. `lists` are
    (version, prefix of the keys, {key: object}); one later than what was told is not judged.
    """
    state, at = {}, 0
    for version, prefix, items in sorted(lists, key=lambda one: one[0]):
        if told and version > told[-1][0]:
            break
        while at < len(told) and told[at][0] <= version:
            _, key, entry = told[at]
            state.pop(key, None)
            if entry is not None:
                state[key] = entry
            at += 1
        stored = {key: entry for key, entry in state.items() if key.startswith(prefix)}
        if stored != items:
            return version, items, stored
    return None
