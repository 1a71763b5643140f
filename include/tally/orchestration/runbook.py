"""What each DAG's page says: what it does, what red means, and what to do."""

STREAMS = """\
### Keeps the streams as people want them
A watcher in the triggerer (`StreamsNeedAction`) looks at the driver's kernel lock and its signs of life once a second,
and updates the asset `streams_need_action` only when something is needed: a driver to start, or one that has said
nothing for 20 seconds to replace. While all is well there is no run. A slow clock, every five minutes, is for a watcher
that is dead itself; its run says so. **act** looks again before it does anything, so a run that is cleared, doubled or
late does no harm. Its log's last line says what was seen and done.

The driver belongs to no Airflow worker: it outlives this task and Airflow itself. **Pausing this DAG stops the
supervision, not the streams.** `tally pause PIPELINE` or `tally stop PIPELINE` stops a stream, `tally down` everything.

A driver that dies is started again at once; one that dies again before every stream went on after 2, 4 … 120 seconds.

**tell** then says how each stream is, in the words of `tally status`, looks whether numbers are still sealed in time,
and sends incidents that nobody was told of to `TALLY_WEBHOOK` and `TALLY_NOTIFIERS`. What cannot be sent is said in its
log, and sent at its next turn.

**Red:** a new driver ended at once. The task's log holds the last lines of the driver's own log,
`logs/stream-tally.log` in the home. Mend what they name; it is tried again by itself. `tally status` shows each stream,
`tally incidents` what happened.
"""

CONTROL = """\
### Says what should become of a stream
**Pausing a DAG is not stopping a stream.** A stream belongs to no DAG: with `streams` paused it runs on, and nobody
looks after it. To stop a stream, trigger this DAG and fill in the form, or use the command line.

| action | the stream | the same as |
|---|---|---|
| pause | stops between two micro-batches, and stays so | `tally pause PIPELINE` |
| resume | goes on where it stopped | `tally resume PIPELINE` |
| restart | is stopped and begun anew, with what made it fail forgotten | `tally restart PIPELINE` |
| stop | stops, and lets go of its table, so that it can be worked on by hand | `tally stop PIPELINE` |

What is wanted stands in the control store with your name and your reason, and `tally status` shows both. **wish** is
green once the driver has done it, within seconds as a rule; where no driver lives, its log says so. Runs do not wait
for one another. One that was asked for before another of the same stream, and comes later, is refused.

**Red:** the form is wrong, and the message names the field; a later wish stands; the driver has not done it in two
minutes or cannot (it stays wanted: `tally status`); or the control store did not answer, which is retried.
"""

ARCHIVE = """\
### The archive of `{topic}`
Read by: {readers}.

**ingest** appends the next Kafka offsets to `archive/{topic}`, exactly once, with refused records in quarantine, in
commits of at most `TALLY_MAX_OFFSETS_PER_INGEST` records. Then it says up to which moment the archive holds all that
Kafka held: the batches of these pipelines wait for that. Where nothing is new it says so without starting Spark. One
run at a time; a run that was missed is made up for by the next one.

**Paused:** nothing is archived, and no batch of these pipelines goes on; each says so.

**Red:** retried twice on its own. A message of lost records gives topic, partition and offsets: lengthen the topic's
retention; `tally plan PIPELINE` says what can still be restated. Anything else: mend what the last log lines name; the
next run goes on where this one ended.
"""

BATCH = """\
### The batch layer of `{name}`, to its seals
{what}

| window | key | topics | version |
|---|---|---|---|
| {window} | {key} | {topics} | `{version}` |

For each data interval: **wait** until `archive__<topic>` has archived all that Kafka held at the interval's end,
without a worker; **restate** runs the pipeline's function over the archive and replaces the windows of the interval,
and every older window that newly arrived late events touch; **compare** finds where both layers differ, over all
windows that are closed and not sealed, and the causes (late, duplicate, skipped, in flight, applied twice, split
session, rounding); **judge** checks them with Great Expectations; **seal** makes the windows final with a revision.
Doing it again gives the same. Skipped `judge` and `seal`: no window has closed since.

**Purple `wait`:** its log says which archive it waits for, and whether that DAG is paused. **Red `wait`:** that took
two hours; it names the DAG to look at.

**Red `judge`:** something is unexplained or does not add up, and the windows are held. The log's last line gives the
verdict and where the rows and the Data Docs are. It is not retried: the answer would be the same. Look at the rows
(`tally reconcile {name} --from … --to …`), mend the cause, restate the range with the `backfill` DAG, and it is judged
again.

**Red elsewhere:** retried twice on its own. Mend what the last log lines name and clear the task.

**A range again:** `airflow backfill create --dag-id batch__{name} --from-date … --to-date …
--reprocess-behavior completed`, or the `backfill` DAG; both compare, judge and seal it. Without restating: `reconcile`.
"""

RECONCILE = """\
### Both layers of a pipeline agree, or every difference has its cause
Each `batch__<pipeline>` compares, judges and seals its own interval; this is for any other range, or for one again
after a cause is mended. Fill in the form: one pipeline or several, and a range; without one, all that is closed and not
sealed. Nothing is restated: `backfill` does that too. Each pipeline is compared, judged and sealed by itself: a red one
can be cleared alone. Skipped: there was nothing to compare.

**Red `choose`:** the form is wrong; the message names the field.
**Red `judge`:** something is unexplained or does not add up, and the windows are held; see `batch__<pipeline>`.
"""

BROKEN = """\
### The definition of `{name}` cannot be loaded
Nothing of it is stated, compared or sealed until its file loads again; what is sealed stays served, and its stream goes
on with the definition that it began with. Its topics are archived all the same, where `topics.py`
loads. The DAGs of the other pipelines are as always.

**Red `definition`:** its last line says what is wrong, with the file, the line and the cure, as `tally check` does.
Mend the file: within a minute or two this DAG has its own tasks again, and its next run does what was missed.
"""

PLAN = """\
### Says what a backfill would do, and whether it can
Fill in the form: the answer is the log of **plan**, at once, also while a backfill runs, and nothing is done. It prints
the chunks and checks that the archive and Kafka still hold what they need, like `tally plan`. To have it done, give the
`backfill` DAG the same form.

**Red:** the form is wrong, or records are gone; the message names field, partition and offsets.
"""

BACKFILL = """\
### Restates and reconciles a range of one pipeline
Fill in the form. **plan** prints the chunks and checks that the archive and Kafka still hold what they need; a dry run
ends there. Backfills wait for one another, dry runs too: the `plan` DAG prints the same at once. Then each chunk is
restated, compared, judged and sealed on its own: a red chunk holds only its own windows and can be cleared alone.

**Red `plan`:** the form is wrong, or records are gone; the message names field, partition and offsets.
**Red `judge`:** see `batch__<pipeline>`.
"""

MAINTAIN = """\
### Keeps Tally's tables and control store small, and looks at old seals again
Once a day: **lake** compacts small files and removes those that no table version of the last week needs (never less
than 168 hours) in archive, quarantine, batch and audit tables, one at a time, under each table's writer lock; speed
tables are their driver's own. **audit** then holds the next part of each pipeline's sealed windows against their seals,
and states them again from the archive; in `TALLY_AUDIT_WITHIN` all have had their turn. **control_store** drops old
comparisons that hold no window.

**Never touched:** Airflow's database, its runs and its logs, of Tally's DAGs or of others; tables and files that are
not Tally's; Kafka. Airflow's history is kept small by whoever runs that Airflow.

**Red `audit`:** a window is no longer what was sealed. It is held, readers see that, and `tally incidents` names the
range, what differs and the cure. It is not tried again: the answer would be the same.

**Red elsewhere:** nothing is lost, only not yet tidied. Usual causes: no disk, or a table's lock held for over ten
minutes by a long job.
"""
