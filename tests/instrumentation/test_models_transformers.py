"""transformers with a tiny model that is made here, untrained, on the CPU: nothing is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope.integrations import transformers as integration

torch = pytest.importorskip(
    "torch", reason="transformers runs on torch, which is too large for every machine"
)
transformers = pytest.importorskip("transformers", reason="transformers is what these tests trace")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Recorded = Callable[[], list[Any]]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
PROMPT = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=64)
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.fixture(autouse=True)
def instrumented() -> Iterator[None]:
    integration.instrument()
    yield
    integration.uninstrument()


def generate(model: Any, **options: Any) -> Any:
    return model.generate(
        PROMPT,
        attention_mask=torch.ones_like(PROMPT),
        max_new_tokens=6,
        min_new_tokens=6,
        do_sample=False,
        pad_token_id=0,
        **options,
    )


def only(spans: list[Any], name: str) -> Any:
    (span,) = [span for span in spans if span.name == name]
    return span


def test_a_generation_is_an_inference_stage_with_prefill_and_decode(model: Any, recorded: Recorded) -> None:
    with tailscope.request("chat"):
        generate(model)

    spans = recorded()
    whole, prefill, decode = (only(spans, f"inference{part}") for part in ("", ".prefill", ".decode"))
    expected = {
        "gen_ai.request.model": "GPT2LMHeadModel",
        "gen_ai.usage.input_tokens": 8,
        "gen_ai.usage.output_tokens": 12,
        "input.shape": "2x4",
        "batch.size": 2,
    }
    assert {key: whole.attributes.get(key) for key in expected} == expected
    assert prefill.parent_id == decode.parent_id == whole.span_id
    assert whole.start <= prefill.start < prefill.end == decode.start < decode.end <= whole.end
    assert decode.attributes["decode.steps"] == 5
    first_ms = whole.attributes["gen_ai.response.time_to_first_chunk"] * 1e3
    assert first_ms == pytest.approx(prefill.duration_ms, abs=0.01)
    assert 0 < whole.attributes["tailscope.tpot_ms"] < whole.duration_ms


def test_the_tokens_are_the_same_as_without(model: Any, recorded: Recorded) -> None:
    with tailscope.request("chat"):
        recorded_tokens = generate(model)
        beams = generate(model, num_beams=2)
    integration.uninstrument()

    assert torch.equal(recorded_tokens, generate(model))
    assert torch.equal(beams, generate(model, num_beams=2))
    assert len([span for span in recorded() if span.name == "inference"]) == 2


def test_logits_processors_of_the_service_still_run(model: Any, recorded: Recorded) -> None:
    class Only(transformers.LogitsProcessor):
        def __call__(self, _: Any, scores: Any) -> Any:
            scores = torch.full_like(scores, float("-inf"))
            scores[:, 7] = 0
            return scores

    processors = transformers.LogitsProcessorList([Only()])
    with tailscope.request("chat"):
        by_name = generate(model, logits_processor=processors)
        by_place = model.generate(PROMPT, None, processors, max_new_tokens=2, pad_token_id=0)

    assert by_name[:, 4:].unique().tolist() == by_place[:, 4:].unique().tolist() == [7]
    assert len([span for span in recorded() if span.name == "inference.prefill"]) == 2
    assert len(processors) == 1


def test_a_generation_outside_of_a_request_is_no_trace(model: Any, recorded: Recorded) -> None:
    generate(model)

    assert recorded() == []


def test_what_generate_raises_passes_and_marks_the_stage(model: Any, recorded: Recorded) -> None:
    with tailscope.request("chat"), pytest.raises(ValueError, match="max_new_tokens"):
        model.generate(PROMPT, max_new_tokens=-1)

    assert only(recorded(), "inference").attributes["error.type"] == "ValueError"
    assert tailscope.stats().errors == {}


def test_a_pipeline_has_its_three_stages(model: Any, recorded: Recorded) -> None:
    class Numbers(transformers.Pipeline):
        def _sanitize_parameters(self, **_: Any) -> Any:
            return {}, {}, {}

        def preprocess(self, text: Any, **_: Any) -> Any:
            return {"input_ids": torch.tensor([[int(word) for word in text.split()]])}

        def _forward(self, inputs: Any, **_: Any) -> Any:
            return self.model(**inputs)

        def postprocess(self, outputs: Any, **_: Any) -> Any:
            return int(outputs.logits[0, -1].argmax())

    pipeline = Numbers(model=model)
    with tailscope.request("classify"):
        answer = pipeline("1 2 3")

    spans = recorded()
    request = only(spans, "classify")
    steps = [only(spans, name) for name in ("preprocess", "inference", "postprocess")]
    assert {span.parent_id for span in steps} == {request.span_id}
    assert [span.start for span in steps] == sorted(span.start for span in steps)
    assert isinstance(answer, int)
