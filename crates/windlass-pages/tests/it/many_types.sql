-- Tables with every kind of value that PostgreSQL stores, and with the traces of a life: dropped and added columns,
-- nulls, updated, deleted and dead rows, values that are compressed or in a TOAST table.
CREATE TABLE numbers (a smallint, b integer, c bigint, d real, e double precision, f numeric, g numeric(15,2), h oid, i boolean, j "char");
INSERT INTO numbers SELECT n % 100, n * 7, n::bigint * 1000000007, n / 3.0, sqrt(n), n / 7.0, (n * 37 % 100000) / 100.0, n, n % 3 = 0, 'x'
    FROM generate_series(1, 4000) n;
INSERT INTO numbers VALUES (NULL, NULL, -1, 'NaN', '-Infinity', 'NaN', -0.01, NULL, NULL, NULL),
    (-32768, -2147483648, -9223372036854775808, 0, -0.0, 1e100, 9999999999999.99, 4294967295, true, NULL),
    (0, 0, 0, 0, 0, 0, 0, 0, false, ''), (1, 1, 1, 1, 1, 1e-300, -9999999999999.99, 1, true, 'y');
CREATE TABLE texts (id integer, word text, name varchar(25), fixed char(10), number text, phone text, day text, empty text);
INSERT INTO texts SELECT n, (ARRAY['AIR','MAIL','SHIP','TRUCK','RAIL'])[n % 5 + 1], 'Customer#' || lpad(n::text, 9, '0'), 'c' || n,
    ((n * 7919) % 1000000 / 100.0)::text, format('%s-%s-%s', n % 25 + 10, n % 900 + 100, n * 31 % 9000 + 1000),
    (date '1992-01-01' + n % 2400)::text, '' FROM generate_series(1, 4000) n;
INSERT INTO texts VALUES (1, repeat('x', 126), repeat('y', 25), '', '-1.50', '00', '-', NULL), (2, repeat('x', 127), NULL, 'z', '-0.00', '', '--', '');
CREATE TABLE moments (a date, b time, c timestamp, d timestamptz, e interval, f timetz);
INSERT INTO moments SELECT date '1992-01-01' + n, time '00:00' + n * interval '1 s', timestamp '2000-01-01' + n * interval '1 min',
    now(), n * interval '1 day', '12:00+01' FROM generate_series(1, 2000) n;
CREATE TABLE others (id bigserial PRIMARY KEY, u uuid, j jsonb, k json, b bytea, l integer[], m text[], p point, q box, i inet, x macaddr, t tsvector, v bit varying, r int4range, w name);
INSERT INTO others (u, j, k, b, l, m, p, q, i, x, t, v, r, w) SELECT gen_random_uuid(), jsonb_build_object('id', n, 'name', 'user ' || n % 50, 'tags', ARRAY[n % 7, n % 11]),
    '{"a": 1}', decode(md5(n::text), 'hex'), ARRAY[n, n + 1], ARRAY['a', NULL, 'b' || n], point(n, -n), box(point(0, 0), point(n, n)), '10.0.0.1',
    '08:00:2b:01:02:03', to_tsvector('english', 'cats and dogs ' || n), B'1011', int4range(n, n + 10), 'name' || n FROM generate_series(1, 1500) n;
CREATE INDEX ON others (u);
CREATE TABLE long (id integer, kept text, compressed text, outside text, empty text);
ALTER TABLE long ALTER kept SET STORAGE PLAIN, ALTER outside SET STORAGE EXTERNAL;
INSERT INTO long SELECT n, repeat('p', n), repeat('compress ', n * 20), repeat(md5(n::text), 200), NULL FROM generate_series(1, 200) n;
CREATE TABLE nulls (a integer, b text, c integer, d text, e bigint, f smallint, g text, h integer, i numeric(9,3), j integer);
INSERT INTO nulls SELECT CASE WHEN n % 2 = 0 THEN n END, CASE WHEN n % 3 = 0 THEN 'b' || n END, CASE WHEN n % 5 = 0 THEN n END, NULL,
    CASE WHEN n % 7 = 0 THEN n END, CASE WHEN n % 4 = 0 THEN n % 100 END, CASE WHEN n % 2 = 1 THEN 'g' END, n, CASE WHEN n % 6 > 0 THEN n / 8.0 END,
    CASE WHEN n > 100 THEN n END FROM generate_series(1, 3000) n;
CREATE TABLE life (id integer PRIMARY KEY, gone text, balance integer, filler char(84)) WITH (fillfactor = 80);
INSERT INTO life SELECT n, 'gone' || n, 0, '' FROM generate_series(1, 5000) n;
ALTER TABLE life DROP COLUMN gone;
ALTER TABLE life ADD COLUMN later integer;
ALTER TABLE life ADD COLUMN preset text DEFAULT 'preset';
UPDATE life SET balance = balance + id, later = id WHERE id % 3 = 0;
DELETE FROM life WHERE id % 11 = 0;
UPDATE life SET balance = balance - 7 WHERE id % 5 = 0;
VACUUM life;
UPDATE life SET later = 1, preset = NULL WHERE id % 17 = 0;
BEGIN; UPDATE life SET balance = 1 WHERE id < 300; ROLLBACK;
BEGIN; SELECT count(*) FROM (SELECT FROM life WHERE id < 100 FOR UPDATE) locked; COMMIT;
CREATE TABLE wide AS SELECT n AS a0, n AS a1, n AS a2 FROM generate_series(1, 100) n;
DO $$ BEGIN FOR i IN 3..1200 LOOP EXECUTE format('ALTER TABLE wide ADD COLUMN a%s %s', i, CASE i % 3 WHEN 0 THEN 'integer' WHEN 1 THEN 'text' ELSE 'boolean' END); END LOOP; END $$;
INSERT INTO wide (a0, a3, a800, a1197) SELECT n, n, true, n FROM generate_series(1, 300) n;
INSERT INTO wide SELECT * FROM wide LIMIT 20;
CREATE TABLE duplicates AS SELECT n % 20 AS k, (n % 7)::text AS t, n AS id FROM generate_series(1, 20000) n;
CREATE INDEX ON duplicates (k);
CREATE INDEX ON duplicates (t, k);
CREATE INDEX ON duplicates (id) INCLUDE (t);
CREATE INDEX ON nulls (a, b);
CREATE INDEX ON texts (phone);
CREATE INDEX ON numbers (g);
CREATE TABLE shuffled (id integer PRIMARY KEY, t text UNIQUE);
INSERT INTO shuffled SELECT n, md5(n::text) FROM generate_series(1, 3000) n ORDER BY md5(n::text);
DELETE FROM shuffled WHERE id % 9 = 0;
SELECT count(*) FROM shuffled WHERE id < 100;
CREATE SEQUENCE counter;
SELECT nextval('counter');
CHECKPOINT;
