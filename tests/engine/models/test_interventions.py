"""Changed heads against copied models whose weights were changed by hand, in every causal family."""

import copy
import threading

import pytest
import torch

from engine.changes import truncation
from engine.models.configuration import shape_of
from engine.models.families import FAMILIES
from engine.models.interventions import Change, make_steerable, mean_z, measured, sequence_copying, sequence_losses, steered
from tests.engine.models.tiny import CASES, case

CAUSAL = [c.name for c in CASES if c.name != "bert"]
IDS = torch.tensor([[3, 17, 5, 3, 29, 11, 23, 5, 2], [1, 2, 30, 31, 7, 7, 9, 12, 38]])
HEADS = [(0, 1), (1, 3)]
TOLERANCE = 2e-5  # float32, relative to the largest logit


@pytest.fixture(scope="module", params=CAUSAL)
def model(request):
    return make_steerable(case(request.param).build())


def logits_of(model, ids=IDS):
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits


def under(model, members, ids=IDS):
    """Return the logits of every member, (members, sequences, tokens, vocab), from one widened pass."""
    with steered(members, len(ids), widen=True):
        return logits_of(model, ids).unflatten(0, (len(members), len(ids)))


def close(mine, theirs) -> bool:
    return ((mine - theirs).abs().max() / theirs.abs().max()).item() < TOLERANCE


def modules(model, layer):
    """Return a block's output projection and its query (or fused) projection."""
    family = FAMILIES[shape_of(model.config.to_dict()).family]
    at = lambda name: model.base_model.get_submodule(family.block.format(layer=layer) + name)  # noqa: E731
    return at(family.output), at(family.qkv[0])


def output_columns(model, layer, head):
    """Return the view of W_O, (d_model, d_head), that reads one head, whichever way it is stored."""
    shape = shape_of(model.config.to_dict())
    W = modules(model, layer)[0].weight
    W = W.T if FAMILIES[shape.family].transposed else W
    return W[:, head * shape.d_head : (head + 1) * shape.d_head]


def without(model, heads):
    """Return a copy whose W_O has zeros where it reads the heads."""
    changed = copy.deepcopy(model)
    for where in heads:
        output_columns(changed, *where).zero_()
    return changed


def test_zero_is_a_copy_without_columns_of_w_o(model):
    plain, off = under(model, [(), [Change("z", *head) for head in HEADS]])
    assert close(plain, logits_of(model))
    assert close(off, logits_of(without(model, HEADS)))
    assert not close(off, plain)


def test_each_member_has_its_own_heads(model):
    shape = shape_of(model.config.to_dict())
    every = [(layer, head) for layer in range(shape.n_layers) for head in range(shape.n_heads)]
    for where, mine in zip(every, under(model, [[Change("z", *where)] for where in every]), strict=True):
        assert close(mine, logits_of(without(model, [where])))


def test_mean_is_that_of_z_caught_by_hand(model):
    caught = {}
    hooks = [modules(model, i)[0].register_forward_pre_hook(lambda m, args, i=i: caught.__setitem__(i, args[0].clone())) for i in range(2)]
    logits_of(model)
    for hook in hooks:
        hook.remove()
    shape = shape_of(model.config.to_dict())
    by_hand = torch.stack([caught[i][:, 1:].reshape(-1, shape.n_heads, shape.d_head).mean(0) for i in range(2)])
    means = mean_z(model, shape, IDS).float()
    assert means == pytest.approx(by_hand, rel=1e-4, abs=1e-5)
    where = (1, 2)
    (mine,) = under(model, [[Change("z", *where, shift=means[where])]])
    changed = without(model, [where])  # a constant z is a constant vector added to the attention's output
    constant = output_columns(model, *where) @ by_hand[where]
    modules(changed, 1)[0].register_forward_hook(lambda m, args, out: out + constant)
    assert close(mine, logits_of(changed))


def truncated(A, B, k):
    """Return factors of the rank-k truncation of A B, from the SVD of the whole product."""
    U, s, Vh = torch.linalg.svd(A.double() @ B.double())
    return (U[:, :k] * s[:k]).float(), Vh[:k].float()


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_keep_ov_is_a_copy_with_a_truncated_product(model, keep):
    """W_O' W_V' written where each head has its own value; where heads share it, W_O' = W_O P, which leaves W_V as it is."""
    shape, (layer, head) = shape_of(model.config.to_dict()), (1, 2)
    changed, r = copy.deepcopy(model), shape.d_head
    W_O = output_columns(changed, layer, head)
    W_V = value_rows(changed, layer, head)
    left, right = truncated(W_O, W_V, keep)
    if shape.group_size == 1 and "Q" not in shape.biases:
        W_O.copy_(torch.nn.functional.pad(left, (0, r - keep)))
        W_V.copy_(torch.nn.functional.pad(right, (0, 0, 0, r - keep)))
    else:  # the W_O' of least size with W_O' W_V = the truncation; a value's bias still goes through the whole W_O
        W, bias = W_O.clone(), value_bias(model, layer, head)
        W_O.copy_((left @ right).double() @ torch.linalg.pinv(W_V.double()))
        if bias is not None:
            constant = (W - W_O) @ bias
            modules(changed, layer)[0].register_forward_hook(lambda m, args, out: out + constant)
    (mine,) = under(model, [[truncation(model, shape, (layer, head), "ov", keep, False)]])
    assert close(mine, logits_of(changed))


def value_slice(shape, head) -> slice:
    """Return where a fused or separate value projection has the rows of the value that a head reads."""
    layout, r, group = FAMILIES[shape.family].layout, shape.d_head, head // shape.group_size
    start = {"separate": 0, "concatenated": (shape.n_heads + shape.n_kv_heads) * r, "interleaved": 2 * r}[layout]
    start += group * r * (3 if layout == "interleaved" else 1)
    return slice(start, start + r)


def value_module(model, layer):
    shape = shape_of(model.config.to_dict())
    family = FAMILIES[shape.family]
    return model.base_model.get_submodule(family.block.format(layer=layer) + family.qkv[-1])


def value_rows(model, layer, head):
    shape = shape_of(model.config.to_dict())
    W = value_module(model, layer).weight
    return (W.T if FAMILIES[shape.family].transposed else W)[value_slice(shape, head)]


def value_bias(model, layer, head):
    bias = value_module(model, layer).bias
    return None if bias is None else bias[value_slice(shape_of(model.config.to_dict()), head)]


@pytest.mark.parametrize("keep", [0, 2])
def test_keep_qk_is_a_copy_with_truncated_queries(model, keep):
    """W_Q' of least size with W_Q'^T W_K = the truncation, on the query's side, so that shared keys stay."""
    shape, (layer, head) = shape_of(model.config.to_dict()), (1, 2)
    if shape.qk_norm:
        pytest.skip("queries are normalised after W_Q; the engine refuses")
    changed, r, family = copy.deepcopy(model), shape.d_head, FAMILIES[shape.family]
    start = head * r * (3 if family.layout == "interleaved" else 1)
    fused = modules(changed, layer)[1].weight
    W_Q = (fused.T if family.transposed else fused)[start : start + r]
    W_K = key_rows(model, layer, head)
    left, right = truncated(W_Q.T, W_K, keep)
    W_Q.copy_(((left @ right).double() @ torch.linalg.pinv(W_K.double())).T)
    (mine,) = under(model, [[truncation(model, shape, (layer, head), "qk", keep, False)]])
    assert close(mine, logits_of(changed))


def key_rows(model, layer, head):
    shape = shape_of(model.config.to_dict())
    family, r, group = FAMILIES[shape.family], shape.d_head, head // shape.group_size
    W = model.base_model.get_submodule(family.block.format(layer=layer) + family.qkv[1 if family.layout == "separate" else 0]).weight
    W = W.T if family.transposed else W
    start = {"separate": group * r, "concatenated": (shape.n_heads + group) * r, "interleaved": (3 * group + 1) * r}[family.layout]
    return W[start : start + r]


@pytest.mark.parametrize("circuit", ["ov", "qk"])
def test_all_directions_kept_change_nothing(model, circuit):
    shape = shape_of(model.config.to_dict())
    (mine,) = under(model, [[truncation(model, shape, (1, 2), circuit, shape.d_head, False)]])
    assert close(mine, logits_of(model))


def test_measures_are_those_of_the_logits(model):
    members = [(), [Change("z", 0, 1)], [Change("z", 1, 3)]]
    losses = measured(model, members, IDS, sequence_losses)
    copying = measured(model, members, IDS, lambda logits, ids: sequence_copying(logits, ids, 4))
    for member, heads in enumerate(([], [(0, 1)], [(1, 3)])):
        logits = logits_of(without(model, heads))
        for n, row in enumerate(IDS):
            own = torch.nn.functional.cross_entropy(logits[n, :-1], row[1:]).item()
            assert losses[member, n].item() == pytest.approx(own, rel=1e-4)
            assert copying[member, n].item() == sum(logits[n, t].argmax() == row[t + 1] for t in range(5, 8)) / 3


def test_threads_with_different_changes_do_not_meet():
    model = make_steerable(case("llama grouped wide biased").build())
    wanted = [(), [Change("z", 0, 1)], [Change("z", 1, 3), Change("q", 0, 0)]]
    alone = [under(model, [member]) for member in wanted]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found, barrier = {}, threading.Barrier(len(wanted))

    def work(i):
        barrier.wait()
        found[i] = [under(model, [wanted[i]]) if i else logits_of(model)[None] for _ in range(20)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(run, alone[i]) for i, runs in found.items() for run in runs)
    assert len(found) == 3
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_pass_that_fails_leaves_no_change_behind():
    model = make_steerable(case("gpt2").build())
    plain = logits_of(model)
    with pytest.raises(RuntimeError, match="stopped"), steered([[Change("z", 0, 0)]], 2):
        raise RuntimeError("stopped")
    assert torch.equal(logits_of(model), plain)
