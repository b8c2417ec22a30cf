"""Compare two ways to ask two models, with repeats, costs and a page. The models are scripted: no service is needed.

Run it with `python capitals.py`. Kill it and run it again: what was answered is not asked again.
"""

import asyncio
from pathlib import Path

import holdfast
from holdfast import Dataset, Plan, Usage
from holdfast.agent.providers.provider import ModelRequest
from holdfast.strategies.evaluation.report.page import report_page
from holdfast.testing.provider import ScriptedProvider, ScriptedReply, reply

CAPITALS = {"Japan": "Tokyo", "Peru": "Lima", "Kenya": "Nairobi", "Norway": "Oslo", "Cuba": "Havana", "Oman": "Muscat"}
KNOWN = {"gpt-4o-mini": ("Tokyo", "Oslo", "Havana"), "gpt-4o": ("Tokyo", "Oslo", "Havana", "Lima", "Nairobi")}


def answer(request: ModelRequest) -> ScriptedReply:
    """What a scripted model says: the capital, if it knows it."""
    country = request.messages[-1].text.rpartition(" ")[2].rstrip("?")
    capital = CAPITALS[country]
    said = capital if capital in KNOWN[request.model] else "I do not know"
    polite = f"The capital of {country} is {said}." if "sentence" in request.system else said
    return reply(polite, usage=Usage(prompt_tokens=40, completion_tokens=len(polite) // 4))


async def main() -> None:
    cases = [
        {"id": country, "input": f"What is the capital of {country}?", "expected": capital}
        for country, capital in CAPITALS.items()
    ]
    plan = Plan(
        strategies=["model", {"strategy": "model", "name": "polite", "options": {"system": "Answer in a sentence."}}],
        models=["openai:gpt-4o-mini", "openai:gpt-4o"],
        data=Dataset(cases, name="capitals"),
        graders=["contains"],
        repeat=3,
    )
    provider = ScriptedProvider([answer], loop=True)
    async with holdfast.Runtime("sqlite:///evaluations.db") as runtime:
        for model in ("gpt-4o-mini", "gpt-4o"):
            runtime.add_model(f"openai:{model}", provider, model)
        evaluation = await holdfast.evaluate(plan, id="capitals-1", on=runtime, jobs=8)
        report = await evaluation.report()
        for arm in report.arms:
            assert arm.score is not None
            print(f"{arm.arm}: {arm.score.mean:.2f}, ${arm.cost or 0:.6f}")
        for pair in report.comparisons:
            print(pair.sentence)
        async for trial in evaluation.trials(arm="model@gpt-4o", failed=True):
            print(f"{trial.session_id}: {trial.text}")
    Path("capitals.html").write_text(report_page([report]), encoding="utf-8")
    print(f"{len(provider.requests)} calls; the page is capitals.html")


if __name__ == "__main__":
    asyncio.run(main())
