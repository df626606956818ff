"""If these fail, a full disk stops a run, or an image is evicted that a session is about to use."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox.images.quota import StoredImage, choose_image_to_evict, used_bytes

BASE = StoredImage("base", "", 100, ("base:1",))
STEP = StoredImage("step", "base", 110, ())
A = StoredImage("a", "step", 130, ("a:1",))
B = StoredImage("b", "step", 150, ("b:1",))
ALL = (BASE, STEP, A, B)
USED = {"a:1": 1.0, "b:1": 2.0}


def test_a_base_used_elsewhere_is_not_counted_and_a_shared_layer_once():
    assert used_bytes(ALL, USED) == 10 + 20 + 40
    assert used_bytes(ALL, {"a:1"}) == 10 + 20
    assert used_bytes(ALL, ()) == 0


def test_the_least_recently_used_image_is_evicted_first_unless_needed():
    assert choose_image_to_evict(ALL, USED, in_use=(), kept=()) == "a:1"
    assert choose_image_to_evict(ALL, USED, in_use={"a"}, kept=()) == "b:1"
    assert choose_image_to_evict(ALL, USED, in_use={"a"}, kept={"b:1"}) is None


def test_a_base_image_stays_until_images_built_from_it_are_gone():
    ours = {**USED, "base:1": 0.0}
    assert choose_image_to_evict(ALL, ours, (), ()) == "a:1"
    assert choose_image_to_evict((BASE, STEP), ours, (), ()) == "base:1"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50), st.booleans()), max_size=10))
def test_evicting_everything_removes_all_recorded_images(rows: list[tuple[int, int, bool]]):
    images: list[StoredImage] = []
    for at, (parent, own, named) in enumerate(rows):
        below = images[parent] if parent < len(images) else None
        size = own + (below.size_bytes if below else 0)
        images.append(StoredImage(str(at), below.id if below else "", size, (f"i:{at}",) if named else ()))
    last_used = {name: float(-int(image.id)) for image in images for name in image.names}
    while (name := choose_image_to_evict(images, last_used, (), ())) is not None:
        before = used_bytes(images, last_used)
        images = [each for each in images if name not in each.names]
        assert used_bytes(images, last_used) <= before
    assert not [each for each in images if each.names]
