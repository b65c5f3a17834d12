// Package dataset carries training data between the store, files and learners.
//
// What stored rollouts hold is chosen by reward ([Selection], [Preferences]) and
// written in the forms that trainers read: OpenAI fine-tuning JSONL,
// conversational JSONL, prompt, chosen and rejected JSONL, and Parquet with token
// ids, masks, log-probabilities and advantages ([Row]). The same files are read
// again; a line or row that breaks a rule is named by a
// [agentlightning/algorithm.LineError].
//
// [LoadTasks] loads the tasks of a data set from JSONL, CSV or Parquet.
package dataset
