package db

import (
	"encoding/json"
	"strconv"
)

// Keys writes keys as the statements take them that are about many: a JSON array of
// strings, which no number's precision bounds.
func Keys(keys ...int64) string {
	texts := make([]string, 0, len(keys))
	for _, key := range keys {
		texts = append(texts, strconv.FormatInt(key, 10))
	}
	text, _ := json.Marshal(texts) // strings always can be
	return string(text)
}
