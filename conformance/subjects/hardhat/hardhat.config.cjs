module.exports = { solidity: '0.8.20' }; // hardhat asks for a compiler, and loads none.
