ALTER TABLE chosen.roster_candidates ADD COLUMN healthy boolean;
COMMENT ON COLUMN chosen.roster_candidates.healthy IS 'whether the health checks let the candidate lead; null if unknown';
