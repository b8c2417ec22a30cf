"""Cards: immutable records of runs, as files that algocline reads too. `CardBox` is the door."""

from holdfast.alc.cards.box import CardBox as CardBox
from holdfast.alc.cards.sinks import sinks_from as sinks_from
