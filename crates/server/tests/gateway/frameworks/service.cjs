// An ordinary Express service that charges whenever it is asked to.
const express = require("express");

const app = express();
const charges = [];
app.use(express.json());

app.post("/payments", (request, response) => {
  charges.push(request.body.amount);
  response.status(201).json({ receipt: charges.length });
});

app.get("/payments", (_, response) => response.json({ count: charges.length }));

app.listen(Number(process.argv[2]), "127.0.0.1");
