import numpy as np
import pytest

from probes.accumulate import Axes, Cell

A, N, D = 3, 5, 4
SIZES = {"first": 7, "second": 2}


@pytest.fixture
def gradients():
    rng = np.random.default_rng(0)
    return {block: rng.normal(size=(A, N, D, k)) for block, k in SIZES.items()}


def filled(gradients, groups, allocate=np.zeros, cross=True):
    cell = Cell(Axes(A, N, D, SIZES), allocate, cross=cross)
    for images in groups:
        for block, values in gradients.items():
            cell.add(images, block, values[:, list(images)])
    return cell.arrays()


def test_every_entry_is_its_equation(gradients):
    found = filled(gradients, [range(2), range(2, 5)])
    for at, block in enumerate(SIZES):
        g = gradients[block]
        mean = [[sum(g[a, i, d] for d in range(D)) / D for i in range(N)] for a in range(A)]
        for a in range(A):
            for b in range(A):
                total = sum(mean[b][j] for j in range(N))
                for i in range(N):
                    for j in range(N):
                        assert found["gram_image"][at, a, i, b, j] == pytest.approx(mean[a][i] @ mean[b][j])
                    for d in range(D):
                        assert found["gram_cross"][at, i, a, d, b] == pytest.approx(g[a, i, d] @ total)
                        for e in range(D):
                            assert found["gram_draw"][at, i, a, d, b, e] == pytest.approx(g[a, i, d] @ g[b, i, e])


def test_grouping_changes_no_bit(gradients):
    one = filled(gradients, [range(N)])
    other = filled(gradients, [range(i, i + 1) for i in range(N)])
    for name in ("gram_image", "gram_draw"):
        assert one[name].tobytes() == other[name].tobytes()


def test_scratch_files_change_no_bit(gradients, tmp_path):
    from probes.room import Room

    room = Room(0, 0, 0, in_memory=False, cross=True, folder=tmp_path)
    on_disk = filled(gradients, [range(N)], room.allocate)
    for name, values in filled(gradients, [range(N)]).items():
        assert values.tobytes() == on_disk[name].tobytes()
    assert list(tmp_path.iterdir()) == []


def test_the_grams_are_symmetric_to_the_bit_and_semidefinite(gradients):
    gram = filled(gradients, [range(N)])["gram_image"][0].reshape(A * N, A * N)
    assert np.array_equal(gram, gram.T)
    assert np.linalg.eigvalsh(gram).min() > -1e-12


def test_without_room_for_every_draw_the_cross_gram_is_left_out(gradients):
    assert set(filled(gradients, [range(N)], cross=False)) == {"gram_image", "gram_draw"}
