// Package library is the database that the SQL agent answers questions about: two
// tables in each of two SQLite files, whose columns have not quite the same names,
// questions whose right query is known, and the careless queries that a model is
// warmed up on.
//
// [Create] writes the files from a seed, [Open] reads them without being able to
// change them, [Generate] draws questions, and [Same] compares results, so that an
// answer is judged by what it returns and not by how it is written.
package library
