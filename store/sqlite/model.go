package sqlite

import (
	"fmt"

	agl "agentlightning"
)

func (r reader) Models() ([]agl.Model, error) {
	var models []agl.Model
	err := r.c.query(func(row row) error {
		models = append(models, agl.Model{
			Name: row.text(0), Endpoint: row.text(1), Version: row.int(2),
			Target:   row.text(3),
			KeyGiven: row.int(4) != 0, APIKeyEnv: row.text(5), Kind: agl.BackendKind(row.text(6)), APIVersion: row.text(7),
			Weight: row.int(8), Retries: row.int(9), Concurrency: row.int(10), RPM: row.int(11), TPM: row.int(12),
		})
		return nil
	}, selectModels)
	return models, err
}

func (t *tx) PutModels(models []agl.Model) error {
	t.write()
	if _, err := t.c.exec(deleteModels); err != nil {
		return err
	}
	for i, m := range models {
		if _, err := t.c.exec(insertModel, int64(i), m.Name, m.Endpoint, m.Version, m.Target, m.KeyGiven, m.APIKeyEnv, string(m.Kind), m.APIVersion,
			m.Weight, m.Retries, m.Concurrency, m.RPM, m.TPM); err != nil {
			return fmt.Errorf("put model %s: %w", m.Name, err)
		}
	}
	return nil
}
