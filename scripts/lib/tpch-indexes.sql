-- The primary keys of TPC-H, as unique indexes so that SQLite takes them too, and the foreign keys' usual indexes.
CREATE UNIQUE INDEX region_key ON region (r_regionkey);
CREATE UNIQUE INDEX nation_key ON nation (n_nationkey);
CREATE UNIQUE INDEX supplier_key ON supplier (s_suppkey);
CREATE UNIQUE INDEX customer_key ON customer (c_custkey);
CREATE UNIQUE INDEX part_key ON part (p_partkey);
CREATE UNIQUE INDEX partsupp_key ON partsupp (ps_partkey, ps_suppkey);
CREATE UNIQUE INDEX orders_key ON orders (o_orderkey);
CREATE UNIQUE INDEX lineitem_key ON lineitem (l_orderkey, l_linenumber);
CREATE INDEX partsupp_by_supplier ON partsupp (ps_suppkey);
CREATE INDEX orders_by_customer ON orders (o_custkey);
CREATE INDEX lineitem_by_part ON lineitem (l_partkey, l_suppkey);
