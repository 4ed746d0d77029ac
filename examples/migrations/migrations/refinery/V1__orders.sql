CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL);
INSERT INTO orders VALUES (1, 7);
