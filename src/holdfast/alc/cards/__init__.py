"""Cards: immutable records of runs, in the session store and as files that algocline reads too.

`CardLibrary` is the door; `CardBox` has the files alone.
"""

from holdfast.alc.cards.box import CardBox as CardBox
from holdfast.alc.cards.library import CardLibrary as CardLibrary
from holdfast.alc.cards.sinks import sinks_from as sinks_from
