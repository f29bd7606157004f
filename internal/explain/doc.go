// Package explain holds the explanations that Belfry gives for its decisions: why a run waits, how a run was routed, why fire
// times were missed, how the engine ended runs and attempts, and what changed since a failing job succeeded. It also holds the texts about servers and
// roles that are missing. An explanation is a code from a closed list with named arguments, so programs need not parse its text.
//
// A Note is an explanation as it is stored: a JSON array of the code and its arguments, in the order of the table in this
// package. An Explanation is the form of the REST API: code, named arguments, and the English sentence. Text in other languages
// is made from code and arguments where it is shown: by the web console, and here for alerts and for the fire check (see
// ChineseMissed, MessageIn and Explanation.In). A message of a run can have several Notes, and the handler's own words: see
// Notes.
//
// Stored data keeps codes and the order of their arguments for years. A released code keeps its arguments, and new arguments go
// to the end. A Note of an unknown code, or one that is damaged, reads as code Text with the stored sentence.
//
// In this release, each row holds both the Note and its English sentence. A binary of the previous release reads and writes
// only the sentence, and does not change the Note of the row. So a Note counts only if its English text equals the stored
// sentence, see Read. The texts of this release must therefore not change until that rule is removed.
package explain
