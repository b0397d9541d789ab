-- piece_step: steps that are cut into forward passes. The rarest matrix product of a step (the language-model head) tells how many there are; the
-- layers repeat too, but they are never the rarest. A step is cut where that product comes m >= 2 times and the work between two of them is
-- the same, kernel by kernel (nine of ten operations are like the one at the distance of a piece).
-- Reads the relations cut_step and placed_op (doctor.case.arrays.pieces).
CREATE TABLE piece_step AS
SELECT step_id, piece_count, distance, same_share FROM cut_step
ORDER BY step_id;

-- piece_op: the operations of cut steps, with the piece each belongs to (0 is the first)
CREATE TABLE piece_op AS
SELECT device_op_id, step_id, piece, piece_count FROM placed_op;
