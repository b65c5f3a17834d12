-- Serves the newest rollouts first, which is what people look at. The expression
-- is the one that queries sort by: a time that is unknown is later than any.
CREATE INDEX rollouts_start ON rollouts (coalesce(start_time, 9e999));
