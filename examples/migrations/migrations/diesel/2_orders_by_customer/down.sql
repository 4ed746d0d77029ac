DROP INDEX CONCURRENTLY orders_by_customer;
