-- +goose Up

-- Names are searched by the beginnings of their words. A name is split into words as package words does, which explains the rules. These
-- functions do not depend on the locale of the database.
-- +goose StatementBegin
CREATE FUNCTION fold_case(name text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT translate(lower(name COLLATE "C"),
        'ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩАБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯЁ',
        'àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþαβγδεζηθικλμνξοπρστυφχψωабвгдежзийклмнопрстуфхцчшщъыьэюяё')
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION word_starts(name text) RETURNS SETOF text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    -- The first part of each match is East Asian, the second one is not.
    SELECT DISTINCT left(substr(m[1], i), 24) COLLATE "C"
      FROM regexp_matches(fold_case(name), '([\u2E80-\u2FDF\u3005-\u3007\u3040-\u318F\u31A0-\u31FF\u3400-\u4DBF\u4E00-\u9FFF\uAC00-\uD7AF\uF900-\uFAFF\uFF66-\uFF9F\U00020000-\U0003FFFF]+)', 'g') m,
           generate_series(1, length(m[1])) i
     UNION
    SELECT left(m[1], 24) COLLATE "C"
      FROM regexp_matches(fold_case(name), '([^\u0001-\u002F\u003A-\u0060\u007B-\u00A9\u00AB-\u00B4\u00B6-\u00B9\u00BB-\u00BF\u00D7\u00F7\u2000-\u206F\u20A0-\u20CF\u2100-\u2FDF\u3000-\u303F\u3040-\u318F\u31A0-\u31FF\u3400-\u4DBF\u4E00-\u9FFF\uAC00-\uD7AF\uE000-\uFAFF\uFE10-\uFE1F\uFE30-\uFE6F\uFF00-\uFF0F\uFF1A-\uFF20\uFF3B-\uFF40\uFF5B-\uFF9F\uFFE0-\uFFFF\U0001F000-\U0001FAFF\U00020000-\U0003FFFF]+)', 'g') m
$$;
-- +goose StatementEnd

-- The beginnings of the words in the names of jobs. A row is written only if a job is created, deleted, renamed, or moved to another group.
CREATE TABLE job_words (
    word       text COLLATE "C" NOT NULL,
    group_name text NOT NULL,
    job_id     bigint NOT NULL,
    PRIMARY KEY (group_name, word, job_id)
);

-- +goose StatementBegin
CREATE FUNCTION index_job() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER jobs_named AFTER INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION index_job();
CREATE TRIGGER jobs_renamed AFTER UPDATE ON jobs FOR EACH ROW
    WHEN (OLD.name <> NEW.name OR OLD.group_name <> NEW.group_name) EXECUTE FUNCTION index_job();
CREATE TRIGGER jobs_unnamed AFTER DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION index_job();
-- Creating the triggers has locked the table, so no other transaction changes it from here on.
INSERT INTO job_words SELECT w.word, j.group_name, j.id FROM jobs j, word_starts(j.name) w (word);
CREATE INDEX job_words_of_all ON job_words (word, job_id);

-- +goose Down
DROP TRIGGER jobs_unnamed ON jobs;
DROP TRIGGER jobs_renamed ON jobs;
DROP TRIGGER jobs_named ON jobs;
DROP FUNCTION index_job();
DROP TABLE job_words;
DROP FUNCTION word_starts(text);
DROP FUNCTION fold_case(text);
