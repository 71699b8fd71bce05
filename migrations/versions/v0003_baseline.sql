CREATE TABLE audit (
  id BIGSERIAL NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  actor_site VARCHAR(64) NOT NULL,
  actor_token VARCHAR(64) NOT NULL,
  actor_user VARCHAR(64) DEFAULT '' NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  pool_wide BOOLEAN DEFAULT false NOT NULL,
  address VARCHAR(64) NOT NULL,
  request_id VARCHAR(64) NOT NULL,
  action VARCHAR(64) NOT NULL,
  subject VARCHAR(256) NOT NULL,
  outcome VARCHAR(32) NOT NULL,
  details JSON NOT NULL,
  CONSTRAINT pk_audit PRIMARY KEY (id)
);
CREATE INDEX ix_audit_action_at ON audit (action, at);
CREATE INDEX ix_audit_subject ON audit (subject);
CREATE TABLE pictures (
  digest VARCHAR(64) NOT NULL,
  size VARCHAR(8) NOT NULL,
  media_type VARCHAR(32) NOT NULL,
  content BYTEA NOT NULL,
  CONSTRAINT pk_pictures PRIMARY KEY (digest, size)
);
CREATE TABLE sites (
  id SERIAL NOT NULL,
  name VARCHAR(64) NOT NULL,
  display_name VARCHAR(200) NOT NULL,
  contact VARCHAR(200) NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  quota_bytes BIGINT,
  suspended_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_sites PRIMARY KEY (id),
  CONSTRAINT uq_sites_name UNIQUE (name)
);
CREATE TABLE events (
  id BIGSERIAL NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  site_id INTEGER NOT NULL,
  kind VARCHAR(64) NOT NULL,
  subject VARCHAR(256) NOT NULL,
  details JSON NOT NULL,
  CONSTRAINT pk_events PRIMARY KEY (id),
  CONSTRAINT fk_events_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id)
);
CREATE INDEX ix_events_site_id_id ON events (site_id, id);
CREATE TABLE models (
  id SERIAL NOT NULL,
  site_id INTEGER NOT NULL,
  name VARCHAR(64) NOT NULL,
  kind VARCHAR(16) NOT NULL,
  visibility VARCHAR(16) DEFAULT 'consortium' NOT NULL,
  rights JSON DEFAULT '["download", "merge"]' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  deleted_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_models PRIMARY KEY (id),
  CONSTRAINT uq_models_site_id_name UNIQUE (site_id, name),
  CONSTRAINT fk_models_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id)
);
CREATE TABLE site_keys (
  site_id INTEGER NOT NULL,
  id VARCHAR(64) NOT NULL,
  name VARCHAR(64) NOT NULL,
  public_key TEXT NOT NULL,
  origin VARCHAR(320) DEFAULT '' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  created_by VARCHAR(129) NOT NULL,
  revoked_at TIMESTAMP WITH TIME ZONE,
  revocation VARCHAR(16) DEFAULT '' NOT NULL,
  CONSTRAINT pk_site_keys PRIMARY KEY (site_id, id),
  CONSTRAINT fk_site_keys_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id)
);
CREATE TABLE tokens (
  id VARCHAR(32) NOT NULL,
  site_id INTEGER NOT NULL,
  name VARCHAR(64) NOT NULL,
  kind VARCHAR(16) DEFAULT 'program' NOT NULL,
  role VARCHAR(16) NOT NULL,
  pool_wide BOOLEAN DEFAULT false NOT NULL,
  scopes JSON,
  secret_hash VARCHAR(64) NOT NULL,
  made_by VARCHAR(129),
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE,
  last_used_at TIMESTAMP WITH TIME ZONE,
  revoked_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_tokens PRIMARY KEY (id),
  CONSTRAINT fk_tokens_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id),
  CONSTRAINT uq_tokens_secret_hash UNIQUE (secret_hash)
);
CREATE UNIQUE INDEX uq_tokens_site_id_name_valid ON tokens (site_id, name) WHERE revoked_at IS NULL;
CREATE TABLE users (
  id SERIAL NOT NULL,
  site_id INTEGER NOT NULL,
  name VARCHAR(64) NOT NULL,
  display_name VARCHAR(200) NOT NULL,
  email VARCHAR(254) NOT NULL,
  role VARCHAR(16) NOT NULL,
  pool_wide BOOLEAN DEFAULT false NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  disabled_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_users PRIMARY KEY (id),
  CONSTRAINT uq_users_site_id_name UNIQUE (site_id, name),
  CONSTRAINT fk_users_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id)
);
CREATE TABLE browser_sessions (
  id VARCHAR(32) NOT NULL,
  secret_hash VARCHAR(64) NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  browser VARCHAR(200) NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  last_used_at TIMESTAMP WITH TIME ZONE NOT NULL,
  proved_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_browser_sessions PRIMARY KEY (id),
  CONSTRAINT uq_browser_sessions_secret_hash UNIQUE (secret_hash),
  CONSTRAINT fk_browser_sessions_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id)
);
CREATE INDEX ix_browser_sessions_token_id ON browser_sessions (token_id);
CREATE TABLE grants (
  model_id INTEGER NOT NULL,
  site_id INTEGER NOT NULL,
  rights JSON NOT NULL,
  CONSTRAINT pk_grants PRIMARY KEY (model_id, site_id),
  CONSTRAINT fk_grants_model_id_models FOREIGN KEY(model_id) REFERENCES models (id),
  CONSTRAINT fk_grants_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id)
);
CREATE INDEX ix_grants_site_id_model_id ON grants (site_id, model_id);
CREATE TABLE invitations (
  id VARCHAR(32) NOT NULL,
  secret_hash VARCHAR(64) NOT NULL,
  site_id INTEGER NOT NULL,
  email VARCHAR(254) NOT NULL,
  role VARCHAR(16) NOT NULL,
  pool_wide BOOLEAN DEFAULT false NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  created_by VARCHAR(129) NOT NULL,
  made_by VARCHAR(129),
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  used_at TIMESTAMP WITH TIME ZONE,
  user_id INTEGER,
  revoked_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_invitations PRIMARY KEY (id),
  CONSTRAINT uq_invitations_secret_hash UNIQUE (secret_hash),
  CONSTRAINT fk_invitations_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id),
  CONSTRAINT fk_invitations_user_id_users FOREIGN KEY(user_id) REFERENCES users (id)
);
CREATE TABLE login_links (
  secret_hash VARCHAR(64) NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_login_links PRIMARY KEY (secret_hash),
  CONSTRAINT fk_login_links_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id)
);
CREATE TABLE model_versions (
  id BIGSERIAL NOT NULL,
  model_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  digest VARCHAR(64) NOT NULL,
  size_bytes BIGINT NOT NULL,
  kind VARCHAR(16) NOT NULL,
  format VARCHAR(64) NOT NULL,
  file_name VARCHAR(255) NOT NULL,
  description TEXT NOT NULL,
  card TEXT DEFAULT '' NOT NULL,
  receipts JSON NOT NULL,
  state VARCHAR(16) DEFAULT 'available' NOT NULL,
  state_reason TEXT DEFAULT '' NOT NULL,
  state_changed_at TIMESTAMP WITH TIME ZONE,
  state_changed_by VARCHAR(129) DEFAULT '' NOT NULL,
  fingerprint JSON NOT NULL,
  fingerprint_lists JSON NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  created_by VARCHAR(129) NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  CONSTRAINT pk_model_versions PRIMARY KEY (id),
  CONSTRAINT uq_model_versions_model_id_number UNIQUE (model_id, number),
  CONSTRAINT uq_model_versions_model_id_digest UNIQUE (model_id, digest),
  CONSTRAINT fk_model_versions_model_id_models FOREIGN KEY(model_id) REFERENCES models (id),
  CONSTRAINT fk_model_versions_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id)
);
CREATE INDEX ix_model_versions_digest ON model_versions (digest);
CREATE INDEX ix_model_versions_kind_id ON model_versions (kind, id);
CREATE INDEX ix_model_versions_state_id ON model_versions (state, id);
CREATE TABLE user_tokens (
  token_id VARCHAR(32) NOT NULL,
  user_id INTEGER NOT NULL,
  CONSTRAINT pk_user_tokens PRIMARY KEY (token_id),
  CONSTRAINT fk_user_tokens_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id),
  CONSTRAINT fk_user_tokens_user_id_users FOREIGN KEY(user_id) REFERENCES users (id)
);
CREATE INDEX ix_user_tokens_user_id ON user_tokens (user_id);
CREATE TABLE aliases (
  model_id INTEGER NOT NULL,
  name VARCHAR(64) NOT NULL,
  version_id BIGINT NOT NULL,
  changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_aliases PRIMARY KEY (model_id, name),
  CONSTRAINT fk_aliases_model_id_models FOREIGN KEY(model_id) REFERENCES models (id),
  CONSTRAINT fk_aliases_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id)
);
CREATE INDEX ix_aliases_version_id ON aliases (version_id);
CREATE TABLE downloads (
  version_id BIGINT NOT NULL,
  site_id INTEGER NOT NULL,
  first_at TIMESTAMP WITH TIME ZONE NOT NULL,
  last_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_downloads PRIMARY KEY (version_id, site_id),
  CONSTRAINT fk_downloads_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id),
  CONSTRAINT fk_downloads_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id)
);
CREATE INDEX ix_downloads_site_id ON downloads (site_id);
CREATE TABLE evaluations (
  id BIGSERIAL NOT NULL,
  digest VARCHAR(64) NOT NULL,
  version_id BIGINT NOT NULL,
  site_id INTEGER NOT NULL,
  dataset VARCHAR(128) NOT NULL,
  dataset_digest VARCHAR(64) NOT NULL,
  split VARCHAR(64) NOT NULL,
  protocol VARCHAR(128) NOT NULL,
  images INTEGER,
  note TEXT NOT NULL,
  details JSON NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  created_by VARCHAR(129) NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  CONSTRAINT pk_evaluations PRIMARY KEY (id),
  CONSTRAINT fk_evaluations_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id),
  CONSTRAINT fk_evaluations_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id),
  CONSTRAINT fk_evaluations_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id)
);
CREATE INDEX ix_evaluations_digest_id ON evaluations (digest, id);
CREATE INDEX ix_evaluations_site_id_id ON evaluations (site_id, id);
CREATE TABLE labels (
  version_id BIGINT NOT NULL,
  key VARCHAR(64) NOT NULL,
  value VARCHAR(256) NOT NULL,
  number DOUBLE PRECISION,
  CONSTRAINT pk_labels PRIMARY KEY (version_id, key),
  CONSTRAINT fk_labels_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id)
);
CREATE INDEX ix_labels_key_number_version_id ON labels (key, number, version_id);
CREATE INDEX ix_labels_key_value_version_id ON labels (key, value, version_id);
CREATE TABLE merge_keys (
  version_id BIGINT NOT NULL,
  method VARCHAR(64) NOT NULL,
  key VARCHAR(256) NOT NULL,
  CONSTRAINT pk_merge_keys PRIMARY KEY (version_id, method),
  CONSTRAINT fk_merge_keys_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id)
);
CREATE INDEX ix_merge_keys_method_key_version_id ON merge_keys (method, key, version_id);
CREATE TABLE metrics (
  version_id BIGINT NOT NULL,
  name VARCHAR(64) NOT NULL,
  value DOUBLE PRECISION NOT NULL,
  CONSTRAINT pk_metrics PRIMARY KEY (version_id, name),
  CONSTRAINT fk_metrics_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id)
);
CREATE INDEX ix_metrics_name_value_version_id ON metrics (name, value, version_id);
CREATE TABLE parents (
  version_id BIGINT NOT NULL,
  position INTEGER NOT NULL,
  child_digest VARCHAR(64) NOT NULL,
  parent_digest VARCHAR(64) NOT NULL,
  weight DOUBLE PRECISION NOT NULL,
  method VARCHAR(64) NOT NULL,
  followed BOOLEAN DEFAULT true NOT NULL,
  CONSTRAINT pk_parents PRIMARY KEY (version_id, position),
  CONSTRAINT fk_parents_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id)
);
CREATE INDEX ix_parents_child_digest_parent_digest ON parents (child_digest, parent_digest);
CREATE INDEX ix_parents_parent_digest_child_digest ON parents (parent_digest, child_digest);
CREATE TABLE recipes (
  version_id BIGINT NOT NULL,
  method VARCHAR(64) NOT NULL,
  document JSON NOT NULL,
  CONSTRAINT pk_recipes PRIMARY KEY (version_id),
  CONSTRAINT fk_recipes_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id)
);
CREATE TABLE rounds (
  id BIGSERIAL NOT NULL,
  key VARCHAR(16) NOT NULL,
  site_id INTEGER NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  created_by VARCHAR(129) NOT NULL,
  base_version_id BIGINT NOT NULL,
  method VARCHAR(64) NOT NULL,
  method_version INTEGER NOT NULL,
  mode VARCHAR(32) NOT NULL,
  options JSON NOT NULL,
  description TEXT NOT NULL,
  number INTEGER NOT NULL,
  rounds_total INTEGER NOT NULL,
  predecessor_id BIGINT,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  deadline TIMESTAMP WITH TIME ZONE NOT NULL,
  duration_s INTEGER NOT NULL,
  least_others INTEGER NOT NULL,
  secure JSON,
  terms JSON,
  state VARCHAR(16) NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE,
  ended_by VARCHAR(129),
  result_version_id BIGINT,
  state_digest VARCHAR(64),
  state_size_bytes BIGINT,
  CONSTRAINT pk_rounds PRIMARY KEY (id),
  CONSTRAINT uq_rounds_key UNIQUE (key),
  CONSTRAINT fk_rounds_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id),
  CONSTRAINT fk_rounds_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id),
  CONSTRAINT fk_rounds_base_version_id_model_versions FOREIGN KEY(base_version_id) REFERENCES model_versions (id),
  CONSTRAINT uq_rounds_predecessor_id UNIQUE (predecessor_id),
  CONSTRAINT fk_rounds_predecessor_id_rounds FOREIGN KEY(predecessor_id) REFERENCES rounds (id),
  CONSTRAINT fk_rounds_result_version_id_model_versions FOREIGN KEY(result_version_id) REFERENCES model_versions (id)
);
CREATE INDEX ix_rounds_state_digest ON rounds (state_digest);
CREATE INDEX ix_rounds_state_id ON rounds (state, id);
CREATE TABLE statements (
  version_id BIGINT NOT NULL,
  site_id INTEGER NOT NULL,
  key_id VARCHAR(64) NOT NULL,
  origin VARCHAR(320) DEFAULT '' NOT NULL,
  envelope JSON NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_statements PRIMARY KEY (version_id),
  CONSTRAINT fk_statements_site_id_site_keys FOREIGN KEY(site_id, key_id) REFERENCES site_keys (site_id, id),
  CONSTRAINT fk_statements_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id)
);
CREATE INDEX ix_statements_site_id_key_id ON statements (site_id, key_id);
CREATE TABLE successors (
  version_id BIGINT NOT NULL,
  successor_id BIGINT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  created_by VARCHAR(129) NOT NULL,
  CONSTRAINT pk_successors PRIMARY KEY (version_id, successor_id),
  CONSTRAINT fk_successors_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id),
  CONSTRAINT fk_successors_successor_id_model_versions FOREIGN KEY(successor_id) REFERENCES model_versions (id)
);
CREATE INDEX ix_successors_successor_id ON successors (successor_id);
CREATE TABLE terms (
  version_id BIGINT NOT NULL,
  code VARCHAR(32) NOT NULL,
  detail VARCHAR(256) NOT NULL,
  inherited BOOLEAN DEFAULT false NOT NULL,
  CONSTRAINT pk_terms PRIMARY KEY (version_id, code, detail),
  CONSTRAINT fk_terms_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id)
);
CREATE INDEX ix_terms_code_version_id ON terms (code, version_id);
CREATE TABLE withdrawals (
  id BIGSERIAL NOT NULL,
  version_id BIGINT NOT NULL,
  digest VARCHAR(64) NOT NULL,
  reason VARCHAR(32) NOT NULL,
  explanation TEXT NOT NULL,
  effect VARCHAR(16) NOT NULL,
  own_only BOOLEAN DEFAULT false NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  created_by VARCHAR(129) NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  CONSTRAINT pk_withdrawals PRIMARY KEY (id),
  CONSTRAINT uq_withdrawals_version_id UNIQUE (version_id),
  CONSTRAINT fk_withdrawals_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id),
  CONSTRAINT fk_withdrawals_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id)
);
CREATE INDEX ix_withdrawals_digest ON withdrawals (digest);
CREATE TABLE evaluation_scores (
  evaluation_id BIGINT NOT NULL,
  name VARCHAR(64) NOT NULL,
  value DOUBLE PRECISION NOT NULL,
  low DOUBLE PRECISION,
  high DOUBLE PRECISION,
  CONSTRAINT pk_evaluation_scores PRIMARY KEY (evaluation_id, name),
  CONSTRAINT fk_evaluation_scores_evaluation_id_evaluations FOREIGN KEY(evaluation_id) REFERENCES evaluations (id)
);
CREATE INDEX ix_evaluation_scores_name_value_evaluation_id ON evaluation_scores (name, value, evaluation_id);
CREATE TABLE merge_jobs (
  id BIGSERIAL NOT NULL,
  key VARCHAR(16) NOT NULL,
  site_id INTEGER NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  created_by VARCHAR(129) NOT NULL,
  round_id BIGINT,
  model_name VARCHAR(64) NOT NULL,
  request JSON NOT NULL,
  state VARCHAR(16) NOT NULL,
  progress DOUBLE PRECISION NOT NULL,
  activity TEXT NOT NULL,
  cancel_requested BOOLEAN DEFAULT false NOT NULL,
  attempts INTEGER NOT NULL,
  claimed_by VARCHAR(64) NOT NULL,
  claim_expires_at TIMESTAMP WITH TIME ZONE,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  started_at TIMESTAMP WITH TIME ZONE,
  ended_at TIMESTAMP WITH TIME ZONE,
  refusal JSON,
  version_id BIGINT,
  CONSTRAINT pk_merge_jobs PRIMARY KEY (id),
  CONSTRAINT uq_merge_jobs_key UNIQUE (key),
  CONSTRAINT fk_merge_jobs_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id),
  CONSTRAINT fk_merge_jobs_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id),
  CONSTRAINT fk_merge_jobs_round_id_rounds FOREIGN KEY(round_id) REFERENCES rounds (id),
  CONSTRAINT fk_merge_jobs_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id)
);
CREATE INDEX ix_merge_jobs_site_id_id ON merge_jobs (site_id, id);
CREATE INDEX ix_merge_jobs_state_id ON merge_jobs (state, id);
CREATE UNIQUE INDEX uq_merge_jobs_round ON merge_jobs (round_id) WHERE state IN ('queued', 'running');
CREATE TABLE round_participants (
  round_id BIGINT NOT NULL,
  site_id INTEGER NOT NULL,
  late_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_round_participants PRIMARY KEY (round_id, site_id),
  CONSTRAINT fk_round_participants_round_id_rounds FOREIGN KEY(round_id) REFERENCES rounds (id),
  CONSTRAINT fk_round_participants_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id)
);
CREATE INDEX ix_round_participants_site_id_round_id ON round_participants (site_id, round_id);
CREATE TABLE secure_sessions (
  id BIGSERIAL NOT NULL,
  key VARCHAR(64) NOT NULL,
  descriptor TEXT NOT NULL,
  site_id INTEGER NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  created_by VARCHAR(129) NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  ends_at TIMESTAMP WITH TIME ZONE NOT NULL,
  round_id BIGINT,
  CONSTRAINT pk_secure_sessions PRIMARY KEY (id),
  CONSTRAINT uq_secure_sessions_key UNIQUE (key),
  CONSTRAINT fk_secure_sessions_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id),
  CONSTRAINT fk_secure_sessions_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id),
  CONSTRAINT fk_secure_sessions_round_id_rounds FOREIGN KEY(round_id) REFERENCES rounds (id)
);
CREATE INDEX ix_secure_sessions_ends_at ON secure_sessions (ends_at);
CREATE INDEX ix_secure_sessions_round_id ON secure_sessions (round_id);
CREATE TABLE withdrawal_flags (
  version_id BIGINT NOT NULL,
  withdrawal_id BIGINT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_withdrawal_flags PRIMARY KEY (version_id, withdrawal_id),
  CONSTRAINT fk_withdrawal_flags_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id),
  CONSTRAINT fk_withdrawal_flags_withdrawal_id_withdrawals FOREIGN KEY(withdrawal_id) REFERENCES withdrawals (id)
);
CREATE INDEX ix_withdrawal_flags_withdrawal_id_version_id ON withdrawal_flags (withdrawal_id, version_id);
CREATE TABLE round_contributions (
  round_id BIGINT NOT NULL,
  site_id INTEGER NOT NULL,
  digest VARCHAR(64) NOT NULL,
  size_bytes BIGINT NOT NULL,
  file_name VARCHAR(255) NOT NULL,
  summary JSON NOT NULL,
  least_others INTEGER NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  created_by VARCHAR(129) NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  CONSTRAINT pk_round_contributions PRIMARY KEY (round_id, site_id),
  CONSTRAINT fk_round_contributions_round_id_round_participants FOREIGN KEY(round_id, site_id) REFERENCES round_participants (round_id, site_id),
  CONSTRAINT fk_round_contributions_round_id_rounds FOREIGN KEY(round_id) REFERENCES rounds (id),
  CONSTRAINT fk_round_contributions_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id),
  CONSTRAINT fk_round_contributions_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id)
);
CREATE INDEX ix_round_contributions_digest ON round_contributions (digest);
CREATE TABLE secure_files (
  session_id BIGINT NOT NULL,
  site_id INTEGER NOT NULL,
  digest VARCHAR(64) NOT NULL,
  size_bytes BIGINT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  CONSTRAINT pk_secure_files PRIMARY KEY (session_id, site_id, digest),
  CONSTRAINT fk_secure_files_session_id_secure_sessions FOREIGN KEY(session_id) REFERENCES secure_sessions (id),
  CONSTRAINT fk_secure_files_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id),
  CONSTRAINT fk_secure_files_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id)
);
CREATE INDEX ix_secure_files_digest ON secure_files (digest);
CREATE INDEX ix_secure_files_site_id ON secure_files (site_id);
CREATE TABLE secure_participants (
  session_id BIGINT NOT NULL,
  site_id INTEGER NOT NULL,
  CONSTRAINT pk_secure_participants PRIMARY KEY (session_id, site_id),
  CONSTRAINT fk_secure_participants_session_id_secure_sessions FOREIGN KEY(session_id) REFERENCES secure_sessions (id),
  CONSTRAINT fk_secure_participants_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id)
);
CREATE INDEX ix_secure_participants_site_id_session_id ON secure_participants (site_id, session_id);
CREATE TABLE secure_posts (
  id BIGSERIAL NOT NULL,
  session_id BIGINT NOT NULL,
  phase VARCHAR(64) NOT NULL,
  site_id INTEGER NOT NULL,
  envelope TEXT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  CONSTRAINT pk_secure_posts PRIMARY KEY (id),
  CONSTRAINT uq_secure_posts_session_id_phase_site_id UNIQUE (session_id, phase, site_id),
  CONSTRAINT fk_secure_posts_session_id_secure_sessions FOREIGN KEY(session_id) REFERENCES secure_sessions (id),
  CONSTRAINT fk_secure_posts_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id),
  CONSTRAINT fk_secure_posts_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id)
);
CREATE INDEX ix_secure_posts_session_id_id ON secure_posts (session_id, id);
CREATE TABLE uploads (
  id VARCHAR(32) NOT NULL,
  site_id INTEGER NOT NULL,
  token_id VARCHAR(32) NOT NULL,
  model_name VARCHAR(64) NOT NULL,
  purpose VARCHAR(16) DEFAULT 'version' NOT NULL,
  round_id BIGINT,
  secure_session_id BIGINT,
  least_others INTEGER,
  digest VARCHAR(64) NOT NULL,
  size_bytes BIGINT NOT NULL,
  part_bytes BIGINT NOT NULL,
  file_name VARCHAR(255) NOT NULL,
  description TEXT NOT NULL,
  labels JSON NOT NULL,
  metrics JSON NOT NULL,
  recipe JSON,
  card TEXT DEFAULT '' NOT NULL,
  terms JSON DEFAULT '[]' NOT NULL,
  visibility VARCHAR(16),
  rights JSON,
  as_draft BOOLEAN DEFAULT false NOT NULL,
  statement JSON,
  storage_handle TEXT NOT NULL,
  state VARCHAR(16) NOT NULL,
  claim_expires_at TIMESTAMP WITH TIME ZONE,
  refusal JSON,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  version_id BIGINT,
  CONSTRAINT pk_uploads PRIMARY KEY (id),
  CONSTRAINT fk_uploads_site_id_sites FOREIGN KEY(site_id) REFERENCES sites (id),
  CONSTRAINT fk_uploads_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id),
  CONSTRAINT fk_uploads_round_id_rounds FOREIGN KEY(round_id) REFERENCES rounds (id),
  CONSTRAINT fk_uploads_secure_session_id_secure_sessions FOREIGN KEY(secure_session_id) REFERENCES secure_sessions (id),
  CONSTRAINT fk_uploads_version_id_model_versions FOREIGN KEY(version_id) REFERENCES model_versions (id)
);
CREATE INDEX ix_uploads_state_expires_at ON uploads (state, expires_at);
CREATE UNIQUE INDEX uq_uploads_open ON uploads (site_id, purpose, model_name, digest) WHERE state IN ('receiving', 'checking');
