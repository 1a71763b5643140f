"""The ride generator: one seed, start and rate give one sequence of records, whatever the clock says.

Records come in the order of sending. A ride is sent at its nominal time and its event time strays from that; a late
one lies 11 to 60 minutes back. A payment has its event time first and is sent around it, never before its ride.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tally.demo.city import MINUTE, SHAPES, City
from tally.demo.events import DUPLICATE, GOOD, LATE, PAYMENTS, RIDES, Disorder, Pending, Record, spoil

# A payment before its time: ride id, paid at, amount, payment type, class. Plain tuples, for there may be a million.
Draft = tuple[int, int, str, str, str]
Waiting = Draft | Record
# Payment ids lie apart from ride ids, so that mixing the two up shows.
FIRST_PAYMENT = 7_000_000_000
# A payment that reaches the broker this long after it was made is late, also when it only waited for its late ride.
LATE_AFTER_MS = 10 * MINUTE


@dataclass(kw_only=True)
class Rides:
    """Rides from `first_id` on, one every 1/rate seconds of event time from `start_ms`, and their payments.

    Iterate to get records, without end unless `count` rides or `until_ms` bound it. `next_id` and `last_ms` say how
    far it came; `pending` holds the payments and repeats whose time has not come.
    """

    seed: int
    rate: float
    start_ms: int
    first_id: int = 1
    count: int | None = None
    until_ms: int | None = None
    payments: bool = True
    disorder: Disorder = field(default_factory=Disorder)
    pending: Pending[Waiting] = field(default_factory=Pending)

    def __post_init__(self) -> None:
        self.city = City(self.seed)
        self.next_id, self.last_ms = self.first_id, self.start_ms
        self._disordered = self.disorder.total
        self._rng = random.Random(f"rides/{self.seed}/{self.first_id}")

    def __iter__(self) -> Iterator[Record]:
        step, end = 1000 / self.rate, self.first_id + self.count if self.count is not None else None
        pop = self.pending.pop
        for number in range(2**62):
            now = self.start_ms + int(number * step)
            beyond = self.until_ms is not None and now >= self.until_ms
            now = self.until_ms if beyond and self.until_ms is not None else now
            while (waiting := pop(now)) is not None:
                yield self._waited(*waiting)
            if beyond or self.next_id == end:
                return
            self.next_id, self.last_ms = self.next_id + 1, now
            yield self._ride(self.next_id - 1, now)

    def _ride(self, ride_id: int, now: int) -> Record:
        """The ride of this nominal time; its payment and its repeat are put off until their time."""
        draw, disorder, city = self._rng.random, self.disorder, self.city
        u = draw()
        kind = GOOD if u >= self._disordered else disorder.draw(u)
        at = now + int((draw() * 2 - 1) * disorder.stray_ms)
        if kind == LATE:
            at = now - disorder.late_from_ms - int(draw() * (disorder.late_to_ms - disorder.late_from_ms))
        cabs = city.cabs_on(at // MINUTE)
        cab = cabs[int(draw() * len(cabs))]
        shape = city.shapes[int(draw() * SHAPES)]
        key = str(ride_id)
        value = f'{{"ride_id":{key},{cab.text}"pickup":{at},"dropoff":{at + shape.lasts_ms},{shape.text}'
        fields = f"{cab.vendor},{shape.zone},{cab.id},{shape.total}"
        if u < disorder.bad:
            value, event = spoil(value, kind, "pickup", at, "total_amount", draw())
            return Record(now, RIDES, key, key, value, kind, event, fields)
        ride = Record(now, RIDES, key, key, value, GOOD if kind == DUPLICATE else kind, at, fields)
        if kind == DUPLICATE:
            self._repeat(ride)
        if self.payments:
            self._put_off_payment(ride_id, now, at, shape.total)
        return ride

    def _put_off_payment(self, ride_id: int, now: int, pickup: int, amount: str) -> None:
        draw, disorder = self._rng.random, self.disorder
        paying = self.city.payings[int(draw() * SHAPES)]
        if paying.after_ms is None:
            return
        kind = disorder.draw(draw())
        paid_at = pickup + paying.after_ms
        due = paid_at - int((draw() * 2 - 1) * disorder.stray_ms)
        if kind == LATE:
            due = paid_at + disorder.late_from_ms + int(draw() * (disorder.late_to_ms - disorder.late_from_ms))
        due = max(due, now + 1)
        if kind in (GOOD, DUPLICATE) and due - paid_at > LATE_AFTER_MS:
            kind = LATE
        self.pending.add(due, (ride_id, paid_at, amount, paying.type, kind))

    def _waited(self, due: int, entry: Waiting) -> Record:
        """What was put off, now that it is due: a repeat as it was, or a payment."""
        if isinstance(entry, Record):
            return entry
        ride_id, at, amount, kind_of_payment, kind = entry
        payment_id, key = str(FIRST_PAYMENT + ride_id), str(ride_id)
        value = (
            f'{{"payment_id":{payment_id},"ride_id":{key},"payment_type":"{kind_of_payment}",'
            f'"amount":{amount},"paid_at":{at}}}'
        )
        fields = f"{key},{kind_of_payment},{amount}"
        if kind not in (GOOD, LATE, DUPLICATE):
            value, event = spoil(value, kind, "paid_at", at, "amount", self._rng.random())
            return Record(due, PAYMENTS, payment_id, key, value, kind, event, fields)
        payment = Record(due, PAYMENTS, payment_id, key, value, GOOD if kind == DUPLICATE else kind, at, fields)
        if kind == DUPLICATE:
            self._repeat(payment)
        return payment

    def _repeat(self, first: Record) -> None:
        """Have the same bytes sent again a little later."""
        due = first.due + 1 + int(self._rng.random() * self.disorder.repeat_within_ms)
        self.pending.add(due, first._replace(due=due, kind=DUPLICATE))
