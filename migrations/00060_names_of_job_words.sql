-- +goose Up

-- A row carries the names of the job and its group, and both indexes have them too: a search that needs several words reads thousands of names
-- along an index, and no jobs.
LOCK TABLE jobs IN SHARE ROW EXCLUSIVE MODE;
DROP TABLE job_words;
CREATE TABLE job_words (
    word       text COLLATE "C" NOT NULL,
    group_name text NOT NULL,
    job_id     bigint NOT NULL,
    name       text NOT NULL -- of the job
);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION index_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM job_words w USING word_starts(OLD.name) o (word) WHERE w.group_name = OLD.group_name AND w.word = o.word AND w.job_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO job_words SELECT o.word, NEW.group_name, NEW.id, NEW.name FROM word_starts(NEW.name) o (word);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
INSERT INTO job_words SELECT w.word, j.group_name, j.id, j.name FROM jobs j, word_starts(j.name) w (word);
ALTER TABLE job_words ADD PRIMARY KEY (group_name, word, job_id) INCLUDE (name);
CREATE INDEX job_words_of_all ON job_words (word, job_id) INCLUDE (group_name, name);

-- +goose Down
ALTER TABLE job_words DROP COLUMN name;
ALTER TABLE job_words ADD PRIMARY KEY (group_name, word, job_id);
CREATE INDEX job_words_of_all ON job_words (word, job_id);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION index_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM job_words w USING word_starts(OLD.name) o (word) WHERE w.group_name = OLD.group_name AND w.word = o.word AND w.job_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO job_words SELECT o.word, NEW.group_name, NEW.id FROM word_starts(NEW.name) o (word);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
