CREATE INDEX CONCURRENTLY orders_by_customer ON orders (customer);
