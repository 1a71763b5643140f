-- Written by Tally 0.1.0 before its control store knew revisions: every table, and rows in each.
BEGIN TRANSACTION;
CREATE TABLE audits (
	pipeline VARCHAR(128) NOT NULL, 
	version VARCHAR(32) NOT NULL, 
	place BIGINT NOT NULL, 
	seen_version BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (pipeline, version)
);
INSERT INTO "audits" VALUES('vendor_trips','0123456789ab',1763546400000,-1,1795117928102);
CREATE TABLE beginnings (
	topic VARCHAR(249) NOT NULL, 
	at BIGINT NOT NULL, 
	partitions JSON NOT NULL, 
	PRIMARY KEY (topic)
);
INSERT INTO "beginnings" VALUES('rides',1763546400000,'{"0": {"first": 0}}');
CREATE TABLE begins (
	id INTEGER NOT NULL, 
	pipeline VARCHAR(128) NOT NULL, 
	from_ms BIGINT NOT NULL, 
	"by" VARCHAR(128) NOT NULL, 
	why TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "begins" VALUES(1,'vendor_trips',1763546400000,'ada','a new broker',1763546400000);
CREATE TABLE desired (
	pipeline VARCHAR(128) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	"by" VARCHAR(128) NOT NULL, 
	why TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	restarts INTEGER NOT NULL, 
	PRIMARY KEY (pipeline)
);
INSERT INTO "desired" VALUES('vendor_trips','paused','ada','the broker moves',1795117928089,0);
INSERT INTO "desired" VALUES('zone_demand','running','ada','',1795117928090,1);
CREATE TABLE drivers (
	app VARCHAR(128) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	pid INTEGER NOT NULL, 
	created FLOAT NOT NULL, 
	launched_at BIGINT NOT NULL, 
	heartbeat_at BIGINT NOT NULL, 
	log TEXT NOT NULL, 
	launcher VARCHAR(16) NOT NULL, 
	job TEXT NOT NULL, 
	deaths INTEGER NOT NULL, 
	retry_at BIGINT NOT NULL, 
	last_words TEXT NOT NULL, 
	PRIMARY KEY (app)
);
INSERT INTO "drivers" VALUES('tally','east',77,12.5,1795117928093,1795117928093,'stream-tally.log','local','',0,0,'');
CREATE TABLE hearers (
	incident INTEGER NOT NULL, 
	state VARCHAR(8) NOT NULL, 
	channel VARCHAR(250) NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (incident, state, channel)
);
INSERT INTO "hearers" VALUES(1,'open','webhook',1795117928088);
CREATE TABLE incidents (
	id INTEGER NOT NULL, 
	pipeline VARCHAR(128) NOT NULL, 
	cause VARCHAR(64) NOT NULL, 
	evidence TEXT NOT NULL, 
	cure TEXT NOT NULL, 
	done TEXT NOT NULL, 
	first_seen BIGINT NOT NULL, 
	last_seen BIGINT NOT NULL, 
	times INTEGER NOT NULL, 
	closed_at BIGINT, 
	told_at BIGINT NOT NULL, 
	told_closed_at BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "incidents" VALUES(1,'vendor_trips','stream failed','no disk: ''var'' is full','make room','',1795117928085,1795117928064,1,NULL,0,0);
INSERT INTO "incidents" VALUES(2,'','driver died','driver 7 is gone','','a new driver''s streams move',1795117928087,1795117928086,1,1795117928087,0,0);
CREATE TABLE ingests (
	topic VARCHAR(249) NOT NULL, 
	seq BIGINT NOT NULL, 
	ranges JSON NOT NULL, 
	archived BIGINT NOT NULL, 
	quarantined JSON NOT NULL, 
	gaps BIGINT NOT NULL, 
	delta_version BIGINT NOT NULL, 
	committed_at BIGINT NOT NULL, 
	PRIMARY KEY (topic, seq)
);
INSERT INTO "ingests" VALUES('rides',1,'{"0": [0, 20]}',19,'{"bad_json": 1}',0,1,1763546400000);
CREATE TABLE leases (
	name VARCHAR(250) NOT NULL, 
	epoch INTEGER NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	place VARCHAR(128) NOT NULL, 
	pid INTEGER NOT NULL, 
	created FLOAT NOT NULL, 
	beats BIGINT NOT NULL, 
	held BOOLEAN NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "leases" VALUES('speed/vendor_trips/0123456789ab',1,'east','a start of a machine',14470,3353939.0,0,1);
CREATE TABLE ledger (
	pipeline VARCHAR(128) NOT NULL, 
	version VARCHAR(32) NOT NULL, 
	generation INTEGER NOT NULL, 
	batch BIGINT NOT NULL, 
	ranges JSON NOT NULL, 
	late_watermark BIGINT NOT NULL, 
	watermark BIGINT NOT NULL, 
	rows BIGINT NOT NULL, 
	delta_version BIGINT NOT NULL, 
	committed_at BIGINT NOT NULL, 
	PRIMARY KEY (pipeline, version, generation, batch)
);
INSERT INTO "ledger" VALUES('vendor_trips','0123456789ab',1,0,'{"rides": {"0": [0, 10]}}',1763546400000,1763546400000,3,1,1763546400000);
INSERT INTO "ledger" VALUES('vendor_trips','0123456789ab',1,1,'{"rides": {"0": [10, 20]}}',1763546400000,1763546400000,3,2,1763546400000);
CREATE TABLE manifests (
	topic VARCHAR(249) NOT NULL, 
	place VARCHAR(16) NOT NULL, 
	era INTEGER NOT NULL, 
	seq BIGINT NOT NULL, 
	baseline BOOLEAN NOT NULL, 
	contract VARCHAR(16) NOT NULL, 
	delta_version BIGINT NOT NULL, 
	from_ms BIGINT NOT NULL, 
	to_ms BIGINT NOT NULL, 
	body JSON NOT NULL, 
	PRIMARY KEY (topic, place, era, seq)
);
INSERT INTO "manifests" VALUES('rides','archive',0,1,0,'c1',1,1763546400000,1763546400001,'{"grain": 1, "cells": []}');
CREATE TABLE reconciliations (
	id INTEGER NOT NULL, 
	pipeline VARCHAR(128) NOT NULL, 
	version VARCHAR(32) NOT NULL, 
	from_ms BIGINT NOT NULL, 
	to_ms BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	summary JSON NOT NULL, 
	slots JSON NOT NULL, 
	verdict VARCHAR(16) NOT NULL, 
	data_docs TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "reconciliations" VALUES(1,'vendor_trips','0123456789ab',1763546400000,1763546580000,1795117928100,'{"ticket": "by hand", "unexplained": 2, "archive": {"rides": 4}}','[]','held','gx/1.html');
CREATE TABLE seals (
	pipeline VARCHAR(128) NOT NULL, 
	version VARCHAR(32) NOT NULL, 
	slot_start BIGINT NOT NULL, 
	slot_end BIGINT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	revision INTEGER NOT NULL, 
	digest VARCHAR(80) NOT NULL, 
	rows BIGINT NOT NULL, 
	explained BIGINT NOT NULL, 
	fault TEXT NOT NULL, 
	reconciliation INTEGER NOT NULL, 
	changed_at BIGINT NOT NULL, 
	PRIMARY KEY (pipeline, version, slot_start)
);
INSERT INTO "seals" VALUES('vendor_trips','0123456789ab',1763546400000,1763546460000,'sealed',0,'ab12',9,0,'',1,1763546400000);
INSERT INTO "seals" VALUES('vendor_trips','0123456789ab',1763546460000,1763546520000,'partial',1,'ab12',9,1,'',1,1763546400000);
INSERT INTO "seals" VALUES('vendor_trips','0123456789ab',1763546520000,1763546580000,'held',2,'ab12',9,2,'',1,1763546400000);
CREATE TABLE streams (
	pipeline VARCHAR(128) NOT NULL, 
	version VARCHAR(32) NOT NULL, 
	generation INTEGER NOT NULL, 
	app VARCHAR(128) NOT NULL, 
	state VARCHAR(24) NOT NULL, 
	reason TEXT NOT NULL, 
	batch BIGINT NOT NULL, 
	watermark BIGINT NOT NULL, 
	newest_window BIGINT NOT NULL, 
	freshness FLOAT NOT NULL, 
	rows_per_second FLOAT NOT NULL, 
	progressed_at BIGINT NOT NULL, 
	behind BIGINT NOT NULL, 
	gaining FLOAT NOT NULL, 
	failures INTEGER NOT NULL, 
	retry_at BIGINT NOT NULL, 
	restarts INTEGER NOT NULL, 
	updated_at BIGINT NOT NULL, 
	PRIMARY KEY (pipeline)
);
INSERT INTO "streams" VALUES('vendor_trips','0123456789ab',0,'tally','running','',41,1763546400000,0,-1.0,0.0,0,-1,0.0,0,0,0,1795117928092);
CREATE TABLE topics (
	topic VARCHAR(249) NOT NULL, 
	topic_id VARCHAR(64) NOT NULL, 
	seen_at BIGINT NOT NULL, 
	PRIMARY KEY (topic)
);
INSERT INTO "topics" VALUES('rides','AbCd',1795117928099);
CREATE TABLE watchers (
	name VARCHAR(64) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	pid INTEGER NOT NULL, 
	beat_at BIGINT NOT NULL, 
	saw TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "watchers" VALUES('streams','east',14470,1795117928105,'driver 77 lives');
CREATE INDEX ledger_by_version ON ledger (pipeline, version, batch);
CREATE INDEX begins_by_pipeline ON begins (pipeline, id);
CREATE INDEX reconciliations_by_pipeline ON reconciliations (pipeline, at);
COMMIT;
