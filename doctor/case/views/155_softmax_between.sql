-- softmax_between: softmax kernels between two matrix products that follow each other on a stream, with nothing between that samples, routes or
-- fuses attention: how many kernels after the one product (`product_op_id`) and before the next.
-- between_products: all kernels between such products.
-- Reads the relations softmax and inner_kernel (doctor.case.arrays.attention).
CREATE TABLE softmax_between AS
SELECT product_op_id, before_count, after_count FROM softmax;

CREATE TABLE between_products AS
SELECT device_op_id, product_op_id FROM inner_kernel
ORDER BY device_op_id;
