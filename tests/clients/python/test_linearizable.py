"""Concurrent requests are linearizable, on disk through deaths of the server and in memory: what many clients were told is
explained by one order of what they asked, a watch that goes on across every restart tells exactly what is stored, and every
list, whole or in pages, of now or of an older version, is what that watch had told up to its version.

The server here is the test's own (CONTROLPLANE names the program), so that it can be killed. The seed of a run is in the
message of its failure, and LINEARIZABLE_SEED repeats its choices (not its timing).
"""

import dataclasses
import tempfile
import unittest

from history import LIONS, MAPS, PODS, Run
from linearizability import Request, Undecided, order, torn

KINDS = (MAPS, PODS, LIONS)
# Requests answered between two deaths of the server, and how often that many are.
ROUND = 350
ROUNDS = 6
# Requests of a run among which lies are planted.
LIED_ABOUT = 200
# Every run is one: everything was asked, was told in many ways, and every kind of refusal came.
SAID = {
    ("get", "found"), ("get", "absent"), ("list", "listed"), ("create", "stored"), ("create", "exists"), ("update", "stored"),
    ("update", "conflict"), ("patch", "stored"), ("patch", "absent"), ("apply", "stored"), ("delete", "deleted"),
    ("delete", "absent"), ("generate", "stored as"), ("many", "listed"), ("pages", "many"),
}


def lies(history):
    """The history with one answer that is not true, of each sort there is occasion for."""
    made = {}
    for at, request in enumerate(history):
        answer = request.answer
        if answer and answer[0] == "stored":
            made[answer[2]] = request.ended
        if answer and answer[0] == "found":
            key, _, version, *_ = request.what[1], *answer[1:]
            older = [one.answer for one in history[:at] if one.what == ("get", key) and one.answer and one.answer[0] == "found"]
            older = [one for one in older if one[1] == answer[1] and one[2] < version]
            if older and made.get(version, request.began) < request.began:
                yield "a read that is behind", history[:at] + [dataclasses.replace(request, answer=older[-1])] + history[at + 1:]
                break
    for at, request in enumerate(history):
        # One that somebody still reads later was not deleted meanwhile.
        later = [one for one in history[at:] if one.began > request.ended and one.answer] if request.what == ("list", "") else []
        read = {(one.what[1], *one.answer[1:3]) for one in later if one.answer[0] == "found"}
        read |= {(key, *item[:2]) for one in later if one.answer[0] == "listed" for key, item in one.answer[2].items()}
        left_out = [key for key, item in request.answer[2].items() if (key, *item[:2]) in read] if later and request.answer else []
        if left_out:
            items = {key: item for key, item in request.answer[2].items() if key != left_out[-1]}
            answer = (*request.answer[:2], items)
            yield "a torn list", history[:at] + [dataclasses.replace(request, answer=answer)] + history[at + 1:]
            break
    for at, request in enumerate(history):
        seen = {one.answer[2] for one in history[at:] if one.answer and one.answer[0] == "found"}
        if request.what[0] in ("patch", "status") and request.answer and request.answer[0] == "stored" and request.answer[2] in seen:
            yield "a write that was not done", history[:at] + [dataclasses.replace(request, answer=("absent",))] + history[at + 1:]
            break


class Linearizable(unittest.TestCase):
    def check(self, store, deaths):
        run = Run(self, store, KINDS, ROUNDS, ROUND, deaths)
        said = set().union(*(one.said for one in run.clients))
        self.assertLessEqual(SAID | {("status", "stored"), ("status", "absent")}, said)
        for kind, watcher in run.watchers.items():
            self.judge(run, kind, watcher)
            self.plant(run, kind)
        self.assertGreater(sum(watcher.bookmarks for watcher in run.watchers.values()), 0)

    def judge(self, run, kind, watcher):
        history, place = run.history[kind], f"seed {run.seed}, {kind.plural}"
        try:
            why = "have no order" if order(history) is None else None
        except Undecided as undecided:
            why = f"are not judged: {undecided}"
        if why:
            with tempfile.NamedTemporaryFile("w", delete=False, suffix=".history") as kept:
                kept.writelines(f"{request}\n" for request in history)
            self.fail(f"{place}: {len(history)} requests {why}: {kept.name}")
        # What was acknowledged the watch told, in the order of versions and once.
        versions = [version for version, _, _ in watcher.told]
        self.assertEqual(versions, sorted(set(versions)), place)
        told = {entry[2] for _, _, entry in watcher.told if entry}
        acknowledged = {request.what[2] for request in history if request.answer and request.answer[0] == "stored"}
        self.assertEqual(acknowledged - told, set(), place)
        lists = [one for client in run.clients if client.kind is kind for one in client.lists]
        lists += [(request.answer[1], request.what[1], request.answer[2]) for request in history if request.what[0] == "list"]
        self.assertGreater(len(lists), len(history) // 10, place)
        self.assertIsNone(torn(watcher.told, lists), place)

    def plant(self, run, kind):
        """The checker finds each lie that is planted in what was really told."""
        true = [run.history[kind][i] for i in order(run.history[kind])][:LIED_ABOUT]
        self.assertIsNotNone(order(true))
        for lie, history in lies(true):
            self.assertIsNone(order(history), f"seed {run.seed}, {kind.plural}: {lie} was believed")

    def test_on_disk_through_deaths(self):
        self.check("disk", deaths=ROUNDS - 1)

    def test_in_memory(self):
        self.check("memory", deaths=0)


class TheCheckerItself(unittest.TestCase):
    """Histories that are right, and each kind of wrong."""

    def judge(self, *requests):
        return order([Request(*request) for request in requests]) is not None

    @staticmethod
    def object(uid, version, main, status=None):
        return uid, version, status if status and status > main else main, main, status

    def found(self, *object):
        return "found", *self.object(*object)

    def test_one_after_another(self):
        made = (0, 1, ("create", "a", "x"), ("stored", "u", 5))
        self.assertTrue(self.judge(made, (2, 3, ("get", "a"), self.found("u", 5, "x"))))
        self.assertFalse(self.judge(made, (2, 3, ("get", "a"), ("absent",))), "a read that is behind")
        self.assertTrue(self.judge(made, (0.5, 3, ("get", "a"), ("absent",))), "they were at work together")
        self.assertFalse(self.judge(made, (2, 3, ("create", "a", "y"), ("stored", "v", 6))), "made twice")
        self.assertFalse(self.judge(made, (2, 3, ("patch", "a", "y"), ("stored", "v", 6))), "another uid")
        self.assertFalse(self.judge(made, (2, 3, ("patch", "a", "y"), ("stored", "u", 5))), "the version stays")
        self.assertFalse(self.judge(made, (2, 3, ("delete", "a", "v"), ("deleted", "u"))), "a precondition passed over")
        self.assertTrue(self.judge(made, (2, 3, ("delete", "a", "v"), ("conflict",))))

    def test_an_apply_makes_or_changes(self):
        made = (0, 1, ("apply", "a", "x"), ("stored", "u", 5))
        self.assertTrue(self.judge(made, (2, 3, ("apply", "a", "y"), ("stored", "u", 6))))
        self.assertFalse(self.judge(made, (2, 3, ("apply", "a", "y"), ("stored", "v", 6))), "made anew over what is there")

    def test_an_update_that_was_lost(self):
        made = (0, 1, ("create", "a", "x"), ("stored", "u", 5))
        first = (2, 4, ("update", "a", "y", 5), ("stored", "u", 6))
        self.assertTrue(self.judge(made, first, (2, 4, ("update", "a", "z", 5), ("conflict",))))
        self.assertFalse(self.judge(made, first, (2, 4, ("update", "a", "z", 5), ("stored", "u", 7))))

    def test_a_status_and_the_rest_leave_each_other_alone(self):
        made = (0, 1, ("create", "a", "1"), ("stored", "u", 5))
        both = (2, 4, ("status", "a", "2"), ("stored", "u", 6)), (2, 4, ("patch", "a", "3"), ("stored", "u", 7))
        self.assertTrue(self.judge(made, *both, (5, 6, ("get", "a"), ("found", "u", 7, "3", "3", "2"))))
        self.assertFalse(self.judge(made, *both, (5, 6, ("get", "a"), ("found", "u", 7, "3", "3", None))), "a status that was lost")
        self.assertFalse(self.judge(made, (2, 4, ("status", "b", "2"), ("stored", "u", 6))), "of what is not there")

    def test_a_list_is_of_one_moment(self):
        history = [(0, 1, ("create", "a", "x"), ("stored", "u", 5)), (2, 3, ("create", "b", "y"), ("stored", "v", 6))]
        whole = {"a": self.object("u", 5, "x"), "b": self.object("v", 6, "y")}
        older = {"a": whole["a"]}
        self.assertTrue(self.judge(*history, (0, 9, ("list", ""), ("listed", 6, whole))))
        self.assertTrue(self.judge(*history, (0, 9, ("list", ""), ("listed", 5, older))))
        self.assertTrue(self.judge(*history, (4, 9, ("list", "a"), ("listed", 6, older))), "of some keys")
        self.assertFalse(self.judge(*history, (4, 9, ("list", ""), ("listed", 5, older))), "one that is behind")
        self.assertFalse(self.judge(*history, (0, 9, ("list", ""), ("listed", 6, {"b": whole["b"]}))), "a torn one")
        self.assertFalse(self.judge(*history, (0, 9, ("list", ""), ("listed", 5, whole))), "older than what is in it")

    def test_a_deletion_of_many_is_one_of_each(self):
        history = [(0, 1, ("create", "a", "x"), ("stored", "u", 5)), (0, 1, ("create", "b", "y"), ("stored", "v", 6))]
        drops = [(2, 5, ("drop", key), ("gone",)) for key in "ab"]
        between = (3, 4, ("get", "a"), ("absent",)), (3, 4, ("get", "b"), self.found("v", 6, "y"))
        self.assertTrue(self.judge(*history, *drops, *between))
        self.assertFalse(self.judge(*history, *drops, (6, 7, ("get", "b"), self.found("v", 6, "y"))), "one was left")
        unknown = [(2, 5, ("drop", key), None) for key in "ab"]
        self.assertTrue(self.judge(*history, *unknown, (6, 7, ("get", "b"), self.found("v", 6, "y"))), "it was cut short")

    def test_an_acknowledged_write_that_a_death_has_undone(self):
        made = (0, 1, ("create", "a", "x"), ("stored", "u", 5))
        self.assertFalse(self.judge(made, (3, 4, ("get", "a"), ("absent",))))
        # Its answer was never told: both are right, but not one after the other.
        unknown = (0, 2, ("create", "a", "x"), None)
        there, gone = (3, 4, ("get", "a"), self.found("u", 5, "x")), (3, 4, ("get", "a"), ("absent",))
        self.assertTrue(self.judge(unknown, there))
        self.assertTrue(self.judge(unknown, gone))
        self.assertFalse(self.judge(unknown, gone, (5, 6, ("get", "a"), self.found("u", 5, "x"))), "it came after its server's death")
        self.assertTrue(self.judge(unknown, (3, 4, ("patch", "a", "y"), ("stored", "u", 7))), "seen by what was written over it")
        self.assertTrue(self.judge(unknown, (3, 4, ("update", "a", "y", 1), ("conflict",))))

    def test_lists_that_watches_contradict(self):
        x, y = self.object("u", 5, "x"), self.object("v", 7, "y")
        told = [(5, "a", x), (7, "b", y), (8, "a", None)]
        right = [(4, "", {}), (5, "", {"a": x}), (6, "", {"a": x}), (7, "", {"a": x, "b": y}), (7, "b", {"b": y}), (8, "", {"b": y})]
        self.assertIsNone(torn(told, right[::-1]))
        for wrong in ((6, "", {}), (7, "", {"a": x}), (8, "", {"a": x, "b": y}), (5, "", {"a": self.object("u", 5, "z")})):
            self.assertIsNotNone(torn(told, [*right, wrong]), wrong)
        self.assertIsNone(torn(told, [(9, "", {})]), "nobody has told of that moment")


if __name__ == "__main__":
    unittest.main()
