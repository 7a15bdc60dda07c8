-- Kinds of data that databases have besides numbers and words. scripts/bench pages uses them.
CREATE EXTENSION pgcrypto;
-- Bytes that no codec makes smaller: pictures, archives.
CREATE TABLE noise (id bigint, content bytea);
INSERT INTO noise SELECT n, gen_random_bytes(1000) FROM generate_series(1, 15000) n;
-- Columns that the application encrypts; the rest of a row is plain.
CREATE TABLE encrypted (id bigint, customer integer, name bytea, card bytea, at timestamptz);
INSERT INTO encrypted SELECT n, n * 7919 % 50000, pgp_sym_encrypt_bytea(convert_to('customer ' || n, 'UTF8'), 'k', 's2k-mode=0'), gen_random_bytes(48), timestamptz '2024-01-01' + n * interval '7 s' FROM generate_series(1, 60000) n;
-- A measurement of 300 sensors every ten seconds.
CREATE TABLE series (at timestamptz NOT NULL, sensor integer NOT NULL, temperature double precision, humidity real, state smallint);
INSERT INTO series SELECT timestamptz '2024-01-01' + (n / 300) * interval '10 s', n % 300, round((20 + 5 * sin(n / 90000.0) + random())::numeric, 2)::float8, round((50 + 10 * random())::numeric, 1)::real, (random() * 3)::int FROM generate_series(1, 400000) n;
CREATE INDEX series_sensor_at ON series (sensor, at);
-- Rows of many columns with a shape in each, as PostGIS has them.
CREATE TABLE wide AS SELECT n AS id, 'way/' || n AS name, (n % 40)::smallint AS kind, NULL::text AS note, n % 7 = 0 AS bridge, (random() * 100)::real AS a, (random() * 100)::real AS b, n * 3 AS c, (n % 13)::text AS d, NULL::int AS e, jsonb_build_object('highway', (ARRAY['residential','service','track','path'])[1 + n % 4], 'lanes', n % 3) AS tags, polygon(box(point(n % 3600 / 10.0 + random() / 100, n % 1800 / 10.0), point(n % 3600 / 10.0 + random() / 100, n % 1800 / 10.0 + random() / 100))) AS shape FROM generate_series(1, 60000) n;
CREATE TABLE texts (id serial, line text);
