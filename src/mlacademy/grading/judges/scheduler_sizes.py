"""What goes wrong in exercises 04.1 and 04.2: each mistake as a small wrong implementation, a reason, three hints."""

from __future__ import annotations

from mlacademy.grading.exercise import Misconception

CTAS = {"sm90_sparse": 0, "sm100_head64": 1, "sm100_head64x2": 1, "sm100_head128": 2}


def _ctas(kernel: str, h_q: int) -> int:
    return CTAS[kernel] or h_q // 64


COUNT = (
    Misconception(
        "no floor of one",
        "Where one query token's CTAs already outnumber the SMs, the division gives 0. With 0 partitions nothing would "
        "ever run; the kernel uses 1, and its CTAs take turns.",
        (
            "What does your division give for 132 SMs, 128 heads and 100 query tokens? How many partitions must a "
            "launch have at the very least to do any work?",
            "The count is never below 1. A grid may hold more CTAs than the GPU has SMs; the rest start when others "
            "have ended.",
            "Wrap the result: max(..., 1).",
        ),
        model=lambda sms, s_q, h_q, kernel: sms // s_q // _ctas(kernel, h_q),
    ),
    Misconception(
        "s_q left out",
        "Your count does not depend on s_q. Each query token of a request gets CTAs of its own, so with s_q tokens the "
        "GPU holds s_q times fewer partitions.",
        (
            "Look at the grid of the main kernel: (h_q / 64, s_q, partitions). Its product should not exceed the SMs.",
            "One partition holds the CTAs of all query tokens. Which number do you have to divide the SMs by, besides "
            "the CTAs for the heads?",
            "Divide by s_q first: sms // s_q // ctas.",
        ),
        model=lambda sms, s_q, h_q, kernel: max(sms // _ctas(kernel, h_q), 1),
    ),
    Misconception(
        "CTAs counted",
        "You counted CTAs, not partitions. A partition may be a pair of CTAs: 128 heads on SM90, or the paired kernel "
        "on SM100. The pair reads the same blocks, so it is one place to send work to.",
        (
            "How many CTAs does it take to work on all the heads of one query token?",
            "SM90 puts 64 heads on a CTA; sm100_head128 pairs two CTAs for its 128 heads.",
            "Divide the SMs by h_q // 64 on SM90, and by 2 for sm100_head128.",
        ),
        model=lambda sms, s_q, h_q, kernel: max(sms // s_q, 1),
    ),
    Misconception(
        "always a pair",
        "On SM90 a partition is a pair of CTAs only with 128 heads. 64 heads fit into one CTA.",
        (
            "How many CTAs does SM90 need for 64 heads?",
            "One CTA works on 64 heads, so h_q decides: h_q // 64 CTAs.",
            "ctas = h_q // 64 for sm90_sparse.",
        ),
        model=lambda sms, s_q, h_q, kernel: max(sms // s_q // (CTAS[kernel] or 2), 1),
    ),
    Misconception(
        "two launches halved",
        "sm100_head64x2 has all partitions. It serves 128 heads by two launches of the 64-head kernel, and each launch "
        "has a full grid of its own.",
        (
            "Two launches of 64 heads, or one launch of pairs: in which of the two does a partition need two SMs?",
            "In one launch of the 64-head kernel a partition is a single CTA. That does not change when the launch is "
            "repeated for the other heads.",
            "Treat sm100_head64x2 like sm100_head64: max(sms // s_q, 1).",
        ),
        model=lambda sms, s_q, h_q, kernel: max(
            sms // s_q // (2 if kernel == "sm100_head64x2" else _ctas(kernel, h_q)), 1
        ),
    ),
    Misconception(
        "rounded up",
        "You rounded up (or to the nearest). A partition that does not fit whole is not there: its CTAs would have to "
        "wait until others have ended, and the whole launch would wait for them.",
        (
            "148 SMs with three query tokens: 49 whole groups, and one SM left over. Can it do a group's work?",
            "A remainder of SMs stays without a partition, so every division drops its remainder.",
            "Use //, not ceil.",
        ),
        model=lambda sms, s_q, h_q, kernel: -(-sms // (s_q * _ctas(kernel, h_q))),
    ),
)


def _price(
    lengths: list[int],
    parts: int,
    overhead: int,
    *,
    empty: int = 1,
    shift: bool = False,
    counted: int | None = None,
    pooled: bool = False,
    rounding: str = "up",
    room: str = "outside",
) -> tuple[list[int], int]:
    """Blocks and payload with parts of the rules changed; ``counted``: how often the total holds the overhead."""
    blocks = [length // 64 + 1 if shift else max(-(-length // 64), empty) for length in lengths]
    total = -(-sum(lengths) // 64) if pooled else sum(blocks)
    total += overhead * (len(blocks) if counted is None else counted) + (overhead if room == "inside" else 0)
    share = {"up": -(-total // parts), "down": total // parts, "next": total // parts + 1}[rounding]
    return blocks, share + (overhead if room == "outside" else 0)


PRICE = (
    Misconception(
        "empty request is free",
        "A request of length 0 counts one block, not none. It must appear in some partition all the same: somebody has "
        "to write its output of zeros, and that costs time.",
        (
            "Who writes the output of a request without tokens, if no partition ever hears of it?",
            "Every request counts at least one block.",
            "max(length - 1, 0) // 64 + 1 gives 1 for 0 and for 1.",
        ),
        model=lambda **inputs: _price(**inputs, empty=0),
    ),
    Misconception(
        "one block too many at multiples of 64",
        "A length of exactly 64 fills one block, not two: its last token has position 63, and 63 // 64 is block 0.",
        (
            "Which position does the last of 64 tokens have? In which block is that?",
            "Count from the last position, length - 1, not from the length.",
            "max(length - 1, 0) // 64 + 1.",
        ),
        model=lambda **inputs: _price(**inputs, shift=True),
    ),
    Misconception(
        "payload without room for a cut",
        "Your payload is the bare share. A cut makes two partitions pay the overhead for one request, and the last few "
        "units of a partition's room may stay unused; without the extra overhead the walk would not reach the end.",
        (
            "In the running example your payload is 1. Can a partition with room 1 pay the overhead and read a block?",
            "A partition loses at most `overhead` of its room. Give every partition that much on top of its share.",
            "payload = share + overhead.",
        ),
        model=lambda **inputs: _price(**inputs, room="none"),
    ),
    Misconception(
        "last overhead shared out",
        "You divided the last overhead among the partitions as well. Every partition may lose that much room, so it is "
        "added to the payload behind the division.",
        (
            "How much room does one partition lose at most, and how many partitions are there?",
            "Round the share up first, then add the overhead.",
            "payload = -(-total // parts) + overhead.",
        ),
        model=lambda **inputs: _price(**inputs, room="inside"),
    ),
    Misconception(
        "tokens pooled",
        "You put the tokens of all requests together before you counted blocks. A block never holds tokens of two "
        "requests: round up for each request, then add.",
        (
            "Three requests of 1 token each: how many turns of the main loop do they need?",
            "Your list of blocks is right. Its sum is the work, not the sum of the lengths.",
            "total = sum(num_blocks) + overhead * len(num_blocks).",
        ),
        model=lambda **inputs: _price(**inputs, pooled=True),
    ),
    Misconception(
        "overhead written in",
        "You used 5 where the argument overhead stands; another kernel has another one.",
        (
            "Which of the three arguments does your function not read?",
            "The paired SM100 kernel has an overhead of 3.",
            "Use overhead in both places: in the total, and behind the division.",
        ),
        model=lambda lengths, parts, overhead: _price(lengths, parts, 5),
    ),
    Misconception(
        "share one too large",
        "Where the total divides evenly, your share is one too large: rounding up leaves a whole number as it is.",
        (
            "What is 396 / 66, rounded up?",
            "total // parts + 1 is right only where a remainder is left.",
            "-(-total // parts), or (total + parts - 1) // parts.",
        ),
        model=lambda **inputs: _price(**inputs, rounding="next"),
    ),
    Misconception(
        "overhead counted once",
        "You added the overhead once for the whole batch. Every request has a query to load and an output to write, so "
        "each of them adds the overhead to the total.",
        (
            "What does the total come to for two requests of 2 blocks? The chapter has 14.",
            "Sum over the requests: blocks of the request + overhead.",
            "total = sum(num_blocks) + overhead * len(num_blocks).",
        ),
        model=lambda **inputs: _price(**inputs, counted=1),
    ),
    Misconception(
        "no overhead in the total",
        "Your total counts blocks only. Each request also costs the overhead, wherever it is read.",
        (
            "Two requests of 2 blocks cost 14 in the chapter. Where do the other 10 come from?",
            "Add the overhead once for each request before you divide by the partitions.",
            "total = sum(num_blocks) + overhead * len(num_blocks).",
        ),
        model=lambda **inputs: _price(**inputs, counted=0),
    ),
    Misconception(
        "share rounded down",
        "You rounded the share down. Then all partitions together have less room than there is work.",
        (
            "Multiply your share by the number of partitions. Is it at least the total?",
            "The share is the total over the partitions, rounded up.",
            "-(-total // parts) rounds up.",
        ),
        model=lambda **inputs: _price(**inputs, rounding="down"),
    ),
)
