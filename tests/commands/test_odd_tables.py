"""Tables as exports leave them: each is read right at once, or after following the hints of one message."""

from pathlib import Path

import pytest

from tests.support.odd import Odd, follow, made

pytest.importorskip("pyarrow")


@pytest.mark.parametrize("each", made(), ids=lambda each: each.name)
def test_a_table_is_right_after_one_hint_at_most(each: Odd, tmp_path: Path) -> None:
    course = follow(each, tmp_path)
    assert not (course.silent or course.misled or course.loops), course
    assert course.rounds is not None, course
    assert course.rounds <= 1, course
