-- How many of the versions came with no change of a run that another writer may remember. The others are those that
-- make writers forget; of a program that does not know this column all are.
ALTER TABLE meta ADD COLUMN harmless bigint NOT NULL DEFAULT 0;
